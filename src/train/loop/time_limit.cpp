#include "src/train/loop/time_limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "src/core/error.h"
#include "src/core/log.h"

namespace carole::train {
namespace {

using Seconds = std::chrono::duration<double>;

double SecondsUntil(int64_t end, const Moment& now) {
  return static_cast<double>(end) - Seconds(now.wall_clock.time_since_epoch()).count();
}

}  // namespace

TimeLimit::TimeLimit(const TimeLimitOptions& options, const Moment& start)
    : options_(options), start_(start.steady) {
  if (options.job_end == 0 || SecondsUntil(options.job_end, start) > 0) return;
  LogWarning("run",
             "SLURM_JOB_END_TIME={}: got a time in the past, want the end of this job; ignored",
             options.job_end);
  options_.job_end = 0;
}

// A job that is too late loses its last steps, so there are some seconds in reserve.
double TimeLimit::JobMargin() const {
  constexpr double kReserve = 5;
  if (options_.is_margin_fixed || options_.clock == nullptr) return options_.margin_seconds;
  const double measured = options_.clock->SecondsToStop() + kReserve;
  return options_.clock->costs().is_measured ? measured
                                             : std::max(measured, options_.margin_seconds);
}

// Returns how long before the end of its own limit the run stops. At least half of the time is for
// training.
double TimeLimit::RunMargin() const {
  if (options_.clock == nullptr || !options_.clock->costs().is_measured) return 0;
  return std::min(options_.clock->SecondsToStop(), options_.max_seconds / 2);
}

double TimeLimit::RunSecondsLeft(const Moment& now) const {
  return options_.max_seconds > 0
             ? options_.max_seconds - RunMargin() - Seconds(now.steady - start_).count()
             : std::numeric_limits<double>::infinity();
}

double TimeLimit::JobSecondsLeft(const Moment& now) const {
  return options_.job_end > 0 ? SecondsUntil(options_.job_end, now) - JobMargin()
                              : std::numeric_limits<double>::infinity();
}

double TimeLimit::SecondsLeft(const Moment& now) const {
  return std::min(RunSecondsLeft(now), JobSecondsLeft(now));
}

std::string TimeLimit::Reason(const Moment& now) const {
  if (RunSecondsLeft(now) <= 0) {
    const double left = RunMargin() + RunSecondsLeft(now);
    return left > 0 ? fmt::format("{}: {:.1f} of {:g} s are left, to end a step and to save",
                                  Option("max_time"), left, options_.max_seconds)
                    : fmt::format("{}: {:g} s are over", Option("max_time"), options_.max_seconds);
  }
  const double left = JobSecondsLeft(now);
  if (left <= 0) return fmt::format("the job ends in {:.0f} s", left + JobMargin());
  return "";
}

}  // namespace carole::train
