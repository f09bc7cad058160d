#include "src/train/time_limit.h"

#include <fmt/format.h>

#include "src/core/log.h"

namespace carole::train {
namespace {

bool IsOver(int64_t seconds, const Moment& now) {
  return now.of_day >= std::chrono::system_clock::time_point(std::chrono::seconds(seconds));
}

}  // namespace

TimeLimit::TimeLimit(const TimeLimitOptions& options, const Moment& start)
    : options_(options), start_(start.steady) {
  if (options.job_end == 0 || !IsOver(options.job_end, start)) return;
  LogWarning("run", "SLURM_JOB_END_TIME={} has passed: it is of another job", options.job_end);
  options_.job_end = 0;
}

std::string TimeLimit::Reason(const Moment& now) const {
  using Seconds = std::chrono::duration<double>;
  if (options_.max_seconds > 0 && Seconds(now.steady - start_).count() >= options_.max_seconds)
    return fmt::format("--max_time: {:g} s are over", options_.max_seconds);
  if (options_.job_end > 0) {
    const double left =
        static_cast<double>(options_.job_end) - Seconds(now.of_day.time_since_epoch()).count();
    if (left <= options_.margin_seconds) return fmt::format("the job ends in {:.0f} s", left);
  }
  return "";
}

}  // namespace carole::train
