#include "collectives/apart.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <span>

namespace carole::collectives {
namespace {

// Until all ranks are done. The slowest rank sets the pace of the votes, and ends its pause early.
void Vote(Communicator& communicator, std::string_view what, const std::future<void>& done) {
  using std::chrono::milliseconds;
  constexpr milliseconds kLongestPause(500);
  for (milliseconds pause(1);; pause = std::min(2 * pause, kLongestPause)) {
    double at_work = done.wait_for(pause) == std::future_status::ready ? 0 : 1;
    communicator.AllReduce(std::span(&at_work, 1), {.what = what});
    if (at_work == 0) return;
  }
}

}  // namespace

void WorkApart(Communicator& communicator, std::string_view what,
               const std::function<void()>& work) {
  if (communicator.size() == 1) return work();
  std::promise<void> done;
  std::future<void> votes =
      std::async(std::launch::async,
                 [&communicator, what, end = done.get_future()] { Vote(communicator, what, end); });
  std::exception_ptr failure;
  try {
    work();
  } catch (...) {
    failure = std::current_exception();
  }
  done.set_value();
  votes.wait();
  if (failure) std::rethrow_exception(failure);
  votes.get();
}

}  // namespace carole::collectives
