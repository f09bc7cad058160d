#include "io/pipeline/read_ahead.h"

#include <utility>

namespace carole::io {

void ReadAhead::Prefetch(std::vector<int64_t> records) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(records));
  }
  more_.notify_one();
}

void ReadAhead::Work(const std::stop_token& stop) {
  for (;;) {
    std::vector<int64_t> records;
    {
      std::unique_lock lock(mutex_);
      if (!more_.wait(lock, stop, [this] { return !queue_.empty(); })) return;
      records = std::move(queue_.front());
      queue_.pop_front();
    }
    reader_.WillNeed(records);
  }
}

}  // namespace carole::io
