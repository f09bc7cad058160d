// Tells the operating system, from a thread of its own, which records will be read soon.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "io/pipeline/sample_reader.h"

namespace carole::io {

class ReadAhead {
 public:
  // `reader` must outlive this.
  explicit ReadAhead(const SampleReader& reader)
      : reader_(reader), thread_([this](const std::stop_token& stop) { Work(stop); }) {}

  // Returns at once. The records are asked for in the order in which they lie on the disk.
  void Ask(std::vector<int64_t> records);

 private:
  void Work(const std::stop_token& stop);

  const SampleReader& reader_;
  std::mutex mutex_;
  std::condition_variable_any more_;
  std::deque<std::vector<int64_t>> queue_;
  std::jthread thread_;  // last: ends before what it uses
};

}  // namespace carole::io
