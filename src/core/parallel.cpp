#include "src/core/parallel.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace carole {
namespace {

// The state that the threads share.
struct Work {
  const std::function<void(int64_t)>& call;
  int64_t count;
  std::atomic<int64_t> next{0};  // the lowest index that no thread has taken
  std::mutex mutex;
  std::condition_variable changed;
  // The mutex protects these.
  int running = 0;                // threads that have not ended
  int64_t failed_at = count;      // the lowest index that failed
  std::exception_ptr error = {};  // its exception

  void Run() {
    for (int64_t i = next++; i < count; i = next++) {
      try {
        call(i);
      } catch (...) {
        next = count;
        const std::lock_guard lock(mutex);
        if (i < failed_at) {
          failed_at = i;
          error = std::current_exception();
        }
      }
    }
    const std::lock_guard lock(mutex);
    --running;
    changed.notify_one();
  }
};

}  // namespace

void ParallelFor(int64_t count, int threads, const std::function<void(int64_t)>& work,
                 const std::function<void()>& tick) {
  constexpr std::chrono::milliseconds kTick(500);
  if (threads <= 0) threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  Work shared{.call = work, .count = count};
  shared.running = static_cast<int>(std::min<int64_t>(threads, count));
  {
    std::vector<std::jthread> workers;
    for (int t = shared.running; t > 0; --t) workers.emplace_back([&] { shared.Run(); });
    std::unique_lock lock(shared.mutex);
    while (!shared.changed.wait_for(lock, kTick, [&] { return shared.running == 0; })) {
      if (tick) tick();
    }
  }
  if (shared.error) std::rethrow_exception(shared.error);
  if (tick) tick();
}

}  // namespace carole
