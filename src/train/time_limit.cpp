#include "src/train/time_limit.h"

#include <fmt/format.h>

#include "src/core/log.h"

namespace carole::train {
namespace {

using Seconds = std::chrono::duration<double>;

double SecondsUntil(int64_t end, const Moment& now) {
  return static_cast<double>(end) - Seconds(now.of_day.time_since_epoch()).count();
}

}  // namespace

TimeLimit::TimeLimit(const TimeLimitOptions& options, const Moment& start)
    : options_(options), start_(start.steady) {
  if (options.job_end == 0 || SecondsUntil(options.job_end, start) > 0) return;
  LogWarning("run", "SLURM_JOB_END_TIME={} has passed: it is of another job", options.job_end);
  options_.job_end = 0;
}

std::string TimeLimit::Reason(const Moment& now) const {
  if (options_.max_seconds > 0 && Seconds(now.steady - start_).count() >= options_.max_seconds)
    return fmt::format("--max_time: {:g} s are over", options_.max_seconds);
  if (options_.job_end > 0) {
    const double left = SecondsUntil(options_.job_end, now);
    if (left <= options_.margin_seconds) return fmt::format("the job ends in {:.0f} s", left);
  }
  return "";
}

}  // namespace carole::train
