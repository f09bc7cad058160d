#include "src/train/loop/save_clock.h"

#include <algorithm>
#include <cmath>

namespace carole::train {
namespace {

// Guesses for the first save: a copy in memory, and a slow network file system.
constexpr double kCopyBytesPerSecond = 1e9, kWriteBytesPerSecond = 1e8;

constexpr double kSafety = 2;  // a step or a save may take this many times as long as before

void AddLast(std::vector<double>& values, double value, size_t count) {
  if (values.size() == count) values.erase(values.begin());
  values.push_back(value);
}

double Longest(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::ranges::max_element(values);
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace

void SaveClock::SetStateBytes(size_t bytes) {
  guess_.pause = static_cast<double>(bytes) / kCopyBytesPerSecond;
  guess_.durable = guess_.pause + static_cast<double>(bytes) / kWriteBytesPerSecond;
}

void SaveClock::AddStep(double seconds) { AddLast(steps_, seconds, kSteps); }
void SaveClock::AddPause(double seconds) { AddLast(pauses_, seconds, kSaves); }
void SaveClock::AddDurable(double seconds) { AddLast(durables_, seconds, kSaves); }

SaveCosts SaveClock::costs() const {
  SaveCosts costs = guess_;
  if (!pauses_.empty()) costs.pause = Median(pauses_);
  if (!durables_.empty()) costs.durable = Longest(durables_);
  costs.is_measured |= !durables_.empty();
  return costs;
}

void SaveClock::Adopt(const SaveCosts& costs) {
  guess_ = costs;
  pauses_.clear();
  durables_.clear();
}

double SaveClock::step_seconds() const { return Longest(steps_); }

double SaveClock::SecondsToStop() const { return kSafety * (step_seconds() + costs().durable); }

double OptimalSaveInterval(double save_seconds, double failure_seconds) {
  if (save_seconds >= 2 * failure_seconds) return failure_seconds;
  const double ratio = save_seconds / (2 * failure_seconds);
  return std::sqrt(2 * save_seconds * failure_seconds) * (1 + std::sqrt(ratio) / 3 + ratio / 9) -
         save_seconds;
}

double BoundedSaveInterval(double save_seconds, double failure_seconds) {
  constexpr double kShortest = 10, kLongest = 3600, kSavesPerInterval = 10;
  return std::max({std::min(OptimalSaveInterval(save_seconds, failure_seconds), kLongest),
                   kShortest, kSavesPerInterval * save_seconds});
}

}  // namespace carole::train
