// How far a run is: a line at the bottom of a terminal, or now and then in the log.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "src/train/loop/training_callback.h"

namespace carole::monitoring {

struct ProgressValues {
  int64_t step = 0;
  int64_t max_steps = 0;  // 0: no end
  double loss = 0;
  double images_per_second = 0;  // over all ranks
  double seconds_left = 0;
  bool stops_before = false;  // the end of its time comes first, in seconds_left
  const char* doing = "";     // instead of the loss and what follows it: "evaluating"
};

// "[#####.....]  50 %  step 500/1000  loss 0.4321  1340 images/s  0:01:05 left", or what of it fits
// into `width` characters: the bar shrinks and goes first, then the speed, then the share.
std::string FormatProgress(const ProgressValues& values, int width = 1000);

struct ProgressOptions {
  int64_t max_steps = 0;              // 0: no end
  int64_t eval_every = 0;             // steps; 0: never
  std::function<double()> time_left;  // seconds until the run is stopped, or infinite; may be empty
};

// For rank 0. On a terminal one line, overwritten in place at most five times a second; log lines
// push it aside (SetLogHook). Elsewhere a line of the log every 15 s. One object at a time.
class Progress final : public train::TrainingCallback {
 public:
  explicit Progress(const ProgressOptions& options);
  ~Progress() override;  // clears the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Started(const train::RunState& state) override;
  void StepEnded(const train::AppliedStep& step) override;
  void EvaluationBegins(int64_t step) override;
  void Evaluated(int64_t step, const train::Metrics& metrics, double seconds) override;

 private:
  using Clock = std::chrono::steady_clock;

  double SecondsLeft(int64_t step) const;
  void Draw();

  const ProgressOptions options_;
  const int terminal_;
  ProgressValues values_;
  Clock::time_point last_;
  double images_ = 0, seconds_ = 0, steps_ = 0;  // older steps fade out
  double eval_seconds_ = 0;                      // of the last evaluation
};

}  // namespace carole::monitoring
