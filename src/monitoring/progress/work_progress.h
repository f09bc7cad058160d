// Shows the progress of a long task other than training, and when it will be done: one line that is
// overwritten on a terminal and repeated twice a minute in a log.
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
  int64_t done_before = 0;  // the part of `done` that was already done at the start
  double seconds = 0;       // since the start
};

// Returns hours, minutes and seconds: "0:00:10".
std::string FormatTime(double seconds);

// Returns "train: 1200 of 5000 images, 400 images/s, 0:00:10 left". The speed counts only work that
// was done since the start.
std::string FormatWork(const WorkState& state);

// Prints the progress on standard output. One thread uses it.
class WorkProgress {
 public:
  explicit WorkProgress(std::string_view unit) : unit_(unit) {}

  // Prints the progress if it is time to do so. A new value of `what` starts a new line. The last
  // call must have done == total.
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
