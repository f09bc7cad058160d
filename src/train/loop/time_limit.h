// Time limit of a run: its own, or the end of the SLURM job that it is part of.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "src/train/loop/save_clock.h"

namespace carole::train {

struct TimeLimitOptions {
  double max_seconds = 0;  // from the start of the run; 0: no limit
  int64_t job_end = 0;     // seconds since 1970 (SLURM_JOB_END_TIME); 0: unknown
  // Stop this long before job_end: the last step and the checkpoint. Unless is_margin_fixed is set,
  // it holds only until `clock` has measured a save.
  double margin_seconds = 60;
  bool is_margin_fixed = false;
  const SaveClock* clock = nullptr;  // must outlive the limit; null: margin_seconds holds
};

// One moment on two clocks. `steady` measures durations, as nobody can set it; `wall_clock` is
// compared with times that other programs state.
struct Moment {
  std::chrono::steady_clock::time_point steady = std::chrono::steady_clock::now();
  std::chrono::system_clock::time_point wall_clock = std::chrono::system_clock::now();
};

// The run stops early enough for the last step and save. How long these take follows from
// TimeLimitOptions::clock.
class TimeLimit {
 public:
  explicit TimeLimit(const TimeLimitOptions& options, const Moment& start = {});

  // Returns the reason to stop, in words, if the time is over; otherwise an empty text.
  std::string Reason(const Moment& now = {}) const;
  // Returns the seconds until the run must stop; infinity if there is no limit.
  double SecondsLeft(const Moment& now = {}) const;

  // Returns how many seconds before the end of the job the run stops.
  double JobMargin() const;
  // Returns true if there is a job whose end is known, and JobMargin() follows from measured times.
  bool has_measured_margin() const {
    return options_.job_end > 0 && !options_.is_margin_fixed && options_.clock != nullptr &&
           options_.clock->costs().is_measured;
  }

 private:
  double RunMargin() const;
  double RunSecondsLeft(const Moment& now) const;
  double JobSecondsLeft(const Moment& now) const;

  TimeLimitOptions options_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace carole::train
