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

double TimeLimit::RunSecondsLeft(const Moment& now) const {
  return options_.max_seconds > 0 ? options_.max_seconds - Seconds(now.steady - start_).count()
                                  : std::numeric_limits<double>::infinity();
}

double TimeLimit::JobSecondsLeft(const Moment& now) const {
  return options_.job_end > 0 ? SecondsUntil(options_.job_end, now) - options_.margin_seconds
                              : std::numeric_limits<double>::infinity();
}

double TimeLimit::SecondsLeft(const Moment& now) const {
  return std::min(RunSecondsLeft(now), JobSecondsLeft(now));
}

std::string TimeLimit::Reason(const Moment& now) const {
  if (RunSecondsLeft(now) <= 0)
    return fmt::format("{}: {:g} s are over", Option("max_time"), options_.max_seconds);
  const double left = JobSecondsLeft(now);
  if (left <= 0) return fmt::format("the job ends in {:.0f} s", left + options_.margin_seconds);
  return "";
}

}  // namespace carole::train
