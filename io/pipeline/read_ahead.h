// Tells the operating system, from a separate thread, which records will be read soon.
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
  // `reader` must outlive this object.
  explicit ReadAhead(const SampleReader& reader)
      : reader_(reader), thread_([this](const std::stop_token& stop) { Work(stop); }) {}

  // Queues the records and returns at once. The thread requests them in their order on the disk.
  void Prefetch(std::vector<int64_t> records);

 private:
  void Work(const std::stop_token& stop);

  const SampleReader& reader_;
  std::mutex mutex_;
  std::condition_variable_any more_;
  std::deque<std::vector<int64_t>> queue_;
  std::jthread thread_;  // last member: it ends before what it uses
};

}  // namespace carole::io
