#include "src/train/time_limit.h"

#include <fmt/format.h>

namespace carole::train {

TimeLimit::TimeLimit(const TimeLimitOptions& options, const Moment& start)
    : options_(options), start_(start.steady) {}

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
