// How far a long piece of work is, and when it will be done: one line, rewritten on a terminal,
// repeated twice a minute in a log.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace carole::monitoring {

struct WorkState {
  std::string_view what;  // "train"
  std::string_view unit;  // "images"
  int64_t done = 0;
  int64_t total = 0;
  int64_t done_before = 0;  // of `done`: found finished at the start
  double seconds = 0;       // since the start
};

// "0:00:10": hours, minutes, seconds.
std::string FormatTime(double seconds);

// "train: 1200 of 5000 images, 400 images/s, 0:00:10 left".
std::string FormatWork(const WorkState& state);

class WorkProgress {
 public:
  explicit WorkProgress(std::string_view unit) : unit_(unit) {}

  // On standard output. A new `what` starts a new line; the last call has done == total.
  void Show(std::string_view what, int64_t done, int64_t total);

 private:
  using Clock = std::chrono::steady_clock;

  std::string unit_;
  std::string what_;
  int64_t done_before_ = 0;
  Clock::time_point start_;
  Clock::time_point last_;
  bool finished_ = false;
};

}  // namespace carole::monitoring
