#include "src/monitoring/progress/work_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

namespace carole::monitoring {

std::string FormatTime(double seconds) {
  const int64_t s = std::llround(seconds);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

std::string FormatWork(const WorkState& state) {
  std::string text =
      fmt::format("{}: {} of {} {}", state.what, state.done, state.total, state.unit);
  const int64_t done = state.done - state.done_before;
  if (done <= 0 || state.seconds <= 0) return text;
  const double rate = static_cast<double>(done) / state.seconds;
  text += fmt::format(", {:.0f} {}/s", rate, state.unit);
  if (state.done >= state.total) return text;
  return text +
         fmt::format(", {} left", FormatTime(static_cast<double>(state.total - state.done) / rate));
}

void WorkProgress::Show(std::string_view what, int64_t done, int64_t total) {
  constexpr std::chrono::milliseconds kTerminalPause(200);
  constexpr std::chrono::seconds kLogPause(30);
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  const Clock::time_point now = Clock::now();
  if (what != what_) {
    what_ = what;
    done_before_ = done;
    start_ = last_ = now;
    finished_ = false;
  }
  if (finished_) return;
  finished_ = done >= total;
  if (!finished_ && now - last_ < (terminal ? Clock::duration(kTerminalPause) : kLogPause)) return;
  last_ = now;
  const std::string text =
      FormatWork({.what = what,
                  .unit = unit_,
                  .done = done,
                  .total = total,
                  .done_before = done_before_,
                  .seconds = std::chrono::duration<double>(now - start_).count()});
  fmt::print("{}{}{}", terminal ? "\r" : "", text, terminal ? "\033[K" : "");
  if (finished_ || !terminal) fmt::print("\n");
  std::fflush(stdout);
}

}  // namespace carole::monitoring
