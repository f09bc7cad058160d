// The end of the time that a run has: its own, or that of the job it is part of.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace carole::train {

struct TimeLimitOptions {
  double max_seconds = 0;      // from now; 0: any
  int64_t job_end = 0;         // seconds since 1970 (SLURM_JOB_END_TIME); 0: unknown
  double margin_seconds = 60;  // before job_end, for the last step and the checkpoint
};

// A moment: to tell how long something took, by a clock that nobody sets, and as others call it.
struct Moment {
  std::chrono::steady_clock::time_point steady = std::chrono::steady_clock::now();
  std::chrono::system_clock::time_point of_day = std::chrono::system_clock::now();
};

class TimeLimit {
 public:
  explicit TimeLimit(const TimeLimitOptions& options, const Moment& start = {});

  // The reason in words once the time is over, else empty.
  std::string Reason(const Moment& now = {}) const;
  // Until then; infinite where nothing limits it.
  double SecondsLeft(const Moment& now = {}) const;

 private:
  double OwnLeft(const Moment& now) const;
  double JobLeft(const Moment& now) const;

  TimeLimitOptions options_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace carole::train
