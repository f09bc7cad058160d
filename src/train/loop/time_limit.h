// Time limit of a run: its own, or the end of the SLURM job that it is part of.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace carole::train {

struct TimeLimitOptions {
  double max_seconds = 0;      // from the start of the run; 0: no limit
  int64_t job_end = 0;         // seconds since 1970 (SLURM_JOB_END_TIME); 0: unknown
  double margin_seconds = 60;  // stop this long before job_end: the last step and the checkpoint
};

// One moment on two clocks. `steady` measures durations, as nobody can set it; `wall_clock` is
// compared with times that other programs state.
struct Moment {
  std::chrono::steady_clock::time_point steady = std::chrono::steady_clock::now();
  std::chrono::system_clock::time_point wall_clock = std::chrono::system_clock::now();
};

class TimeLimit {
 public:
  explicit TimeLimit(const TimeLimitOptions& options, const Moment& start = {});

  // Returns the reason to stop, in words, if the time is over; otherwise an empty text.
  std::string Reason(const Moment& now = {}) const;
  // Returns the seconds until the run must stop; infinity if there is no limit.
  double SecondsLeft(const Moment& now = {}) const;

 private:
  double RunSecondsLeft(const Moment& now) const;
  double JobSecondsLeft(const Moment& now) const;

  TimeLimitOptions options_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace carole::train
