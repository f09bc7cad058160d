#include "src/train/loop/save_schedule.h"

#include <cmath>

#include "src/core/error.h"
#include "src/core/log.h"
#include "src/core/stopwatch.h"

namespace carole::train {

void SaveSchedule::Begin(int64_t step) {
  last_ = {.step = step, .start = Clock::now(), .end = Clock::now(), .at_risk = {}};
  durable_ = last_;
  interval_ = options_.interval_secs;
}

bool SaveSchedule::IsDue() const { return SecondsSince(last_.end) >= interval_; }

void SaveSchedule::BeginSave() { last_.start = Clock::now(); }

double SaveSchedule::EndSave(int64_t step) {
  last_ = {.step = step, .start = last_.start, .end = Clock::now(), .at_risk = Unsaved(step)};
  const double seconds = std::chrono::duration<double>(last_.end - last_.start).count();
  clock_.AddPause(seconds);
  return seconds;
}

void SaveSchedule::SetWritten(const std::optional<io::WrittenCheckpoint>& written) {
  if (!written || written->step != last_.step || durable_.step == last_.step) return;
  durable_ = last_;
  clock_.AddDurable(std::chrono::duration<double>(written->when - last_.start).count());
  WarnOfShortGrace();
}

void SaveSchedule::LogSave() {
  LogInfo("train",
          "step {}: training stopped for {:.2f} s to save; before, a loss would have cost "
          "{} steps, {:.1f} s",
          last_.step, clock_.costs().pause, last_.at_risk.steps, last_.at_risk.seconds);
}

UnsavedWork SaveSchedule::Unsaved(int64_t step) const {
  return {.steps = step - durable_.step, .seconds = SecondsSince(durable_.start)};
}

void SaveSchedule::ChooseInterval() {
  if (!options_.is_auto) return;
  constexpr double kNoticeable = 0.2;
  const double failure = options_.mean_time_between_failures / num_hosts_;
  const double pause = clock_.costs().pause;
  interval_ = BoundedSaveInterval(pause, failure);
  if (std::abs(interval_ - logged_interval_) <= kNoticeable * logged_interval_) return;
  logged_interval_ = interval_;
  LogInfo("train",
          "{}: {:.0f} s between saves: a save stops training for {:.2f} s, and one of {} hosts is "
          "expected to fail every {:.1f} h",
          Option("save_interval_secs", "auto"), interval_, pause, num_hosts_, failure / 3600);
}

void SaveSchedule::WarnOfShortGrace() {
  const double seconds = clock_.SecondsToStop();
  if (has_warned_ || options_.grace.seconds <= 0 || seconds <= options_.grace.seconds) return;
  has_warned_ = true;
  LogWarning("train",
             "{}: too short to save after a signal: got {:g} s, want {:.0f} s, twice a step and a "
             "save; make it longer, or save to a faster disk",
             options_.grace.source, options_.grace.seconds, seconds);
}

}  // namespace carole::train
