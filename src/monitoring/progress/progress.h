// Shows the progress of a training run: one line at the bottom of the terminal, or a line in the
// log from time to time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "src/train/loop/training_callback.h"

namespace carole::monitoring {

struct ProgressValues {
  int64_t step = 0;
  int64_t max_steps = 0;  // 0: no limit
  double loss = 0;
  double images_per_second = 0;  // over all ranks
  double seconds_left = 0;
  bool stops_early = false;   // the time limit ends the run first, in seconds_left
  const char* activity = "";  // if not empty, shown instead of the loss and the rest: "evaluating"
};

// Returns "[#####.....]  50 %  step 500/1000  loss 0.4321  1340 images/s  0:01:05 left".
// If that does not fit into `width` characters, first the bar gets shorter and is then left out,
// then the speed, then the percentage.
std::string FormatProgress(const ProgressValues& values, int width = 1000);

struct ProgressOptions {
  int64_t max_steps = 0;   // 0: no limit
  int64_t eval_every = 0;  // steps between evaluations; 0: never
  // Returns the seconds until the time limit stops the run, or infinity. May be empty.
  std::function<double()> time_left;
};

// Shows the progress; for rank 0 only. On a terminal it overwrites one line in place, at most five
// times a second; log lines are printed above it (SetLogHook). Otherwise it logs a line every 15 s.
// Only one object may exist at a time.
class Progress final : public train::TrainingCallback {
 public:
  explicit Progress(const ProgressOptions& options);
  ~Progress() override;  // clears the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void OnTrainBegin(const train::RunState& state) override;
  void OnStepEnd(const train::AppliedStep& step) override;
  void OnEvaluationBegin(int64_t step) override;
  void OnEvaluationEnd(int64_t step, const train::Metrics& metrics, double seconds) override;

 private:
  using Clock = std::chrono::steady_clock;

  double SecondsLeft(int64_t step) const;
  void Draw();

  const ProgressOptions options_;
  const int terminal_;
  ProgressValues values_;
  Clock::time_point last_;
  double images_ = 0, seconds_ = 0, steps_ = 0;  // decaying sums: older steps count less
  double eval_seconds_ = 0;                      // of the last evaluation
};

}  // namespace carole::monitoring
