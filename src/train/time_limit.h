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

class TimeLimit {
 public:
  using Clock = std::chrono::system_clock;
  explicit TimeLimit(const TimeLimitOptions& options, Clock::time_point now = Clock::now());

  // The reason in words once the time is over, else empty.
  std::string Reason(Clock::time_point now = Clock::now()) const;

 private:
  TimeLimitOptions options_;
  Clock::time_point start_;
};

}  // namespace carole::train
