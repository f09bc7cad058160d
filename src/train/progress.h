// The progress line at the bottom of a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace carole::train {

struct ProgressValues {
  int64_t step = 0;
  int64_t max_steps = 0;  // 0: no end
  double loss = 0;
  double images_per_second = 0;  // over all ranks
  double seconds_left = 0;
};

// "[#####.....]  50 %  step 500/1000  loss 0.4321  1340 images/s  0:01:05 left"
std::string FormatProgress(const ProgressValues& values);

// One line, overwritten in place; log lines push it aside (SetLogHook). Silent unless `enabled` and
// standard error is a terminal. One object at a time.
class ProgressLine {
 public:
  explicit ProgressLine(bool enabled);
  ~ProgressLine();  // clears the line
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Draws at most five times a second.
  void Show(const ProgressValues& values);

 private:
  const bool enabled_;
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace carole::train
