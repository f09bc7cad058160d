#include "src/train/loop/straggler_log.h"

#include <fmt/format.h>

namespace carole::train {
namespace {

constexpr int64_t kFewestSteps = 100;
constexpr double kFewestSeconds = 10;
constexpr auto kSummaryInterval = std::chrono::minutes(5);

const char* Name(StragglerCause cause) {
  switch (cause) {
    case StragglerCause::kInput:
      return "input";
    case StragglerCause::kCompute:
      return "compute";
    case StragglerCause::kLink:
      return "network link";
    case StragglerCause::kUnknown:
      break;
  }
  return "unknown cause";
}

}  // namespace

std::string StragglerLog::Add(const Straggler& found, const std::string& name, int num_steps,
                              double seconds, Clock::time_point now) {
  all_seconds_ += seconds;
  const Cause cause = {found.rank, found.cause};
  if (found.rank < 0 || cause != current_) {
    current_steps_ = 0;
    current_seconds_ = 0;
  }
  current_ = cause;
  if (found.rank < 0) return "";
  current_steps_ += num_steps;
  current_seconds_ += seconds;
  Delay& delay = delays_[cause];
  delay.name = name;
  delay.seconds += found.delay_ms * 1e-3 * num_steps;
  if (current_steps_ < kFewestSteps || current_seconds_ < kFewestSeconds) return "";
  if (!delay.is_logged) {
    delay.is_logged = true;
    last_line_ = now;
    return fmt::format("{} slows down the other ranks: {}", name, found.why);
  }
  if (now - last_line_ < kSummaryInterval) return "";
  last_line_ = now;
  return Summary();
}

std::string StragglerLog::Summary() const {
  std::string text;
  for (const auto& [cause, delay] : delays_) {
    if (!delay.is_logged) continue;
    text += fmt::format("{}{} has delayed the other ranks by {:.1f} s ({})",
                        text.empty() ? "" : "; ", delay.name, delay.seconds, Name(cause.second));
  }
  return text.empty() ? "" : fmt::format("in {:.0f} s of steps, {}", all_seconds_, text);
}

}  // namespace carole::train
