#include "src/train/loop/straggler.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "src/core/log.h"

namespace carole::train {
namespace {

constexpr int kSteps = 50;                // between two searches
constexpr double kToleratedShare = 0.05;  // of a step
constexpr double kToleratedMs = 1;        // per step

std::vector<double> Column(std::span<const RankTimes> times, double RankTimes::*field) {
  std::vector<double> column;
  for (const RankTimes& t : times) column.push_back(t.*field);
  return column;
}

double NthSmallest(std::vector<double> values, size_t n) {
  std::sort(values.begin(), values.end());
  return values[n];
}

// For an even count, LowerMedian() takes the lower of the two middle values: of two ranks, the
// faster one. UpperMedian() takes the higher value; it is used for the times that ranks waited.
double LowerMedian(const std::vector<double>& values) {
  return NthSmallest(values, (values.size() - 1) / 2);
}
double UpperMedian(const std::vector<double>& values) {
  return NthSmallest(values, values.size() / 2);
}

}  // namespace

Straggler FindStraggler(std::span<const RankTimes> times) {
  const double tolerated =
      std::max(kToleratedShare * LowerMedian(Column(times, &RankTimes::step)), kToleratedMs);
  const std::vector<double> waited = Column(times, &RankTimes::waited);
  const auto least = std::min_element(waited.begin(), waited.end());
  const auto slow = static_cast<size_t>(least - waited.begin());
  const double late = UpperMedian(waited) - times[slow].waited;

  // A slow link delays the ranks on both of its sides alike, so waiting times do not show it.
  const std::vector<double> links = Column(times, &RankTimes::link);
  const auto worst = std::max_element(links.begin(), links.end());
  const double lost = *worst - LowerMedian(links);
  if (lost > std::max(late, tolerated)) {
    return {.rank = static_cast<int>(worst - links.begin()),
            .cause = StragglerCause::kLink,
            .delay_ms = lost,
            .why = fmt::format("its network link: reductions take {:.1f} ms per step at the speed "
                               "of this link, {:.1f} ms on the median rank",
                               *worst, LowerMedian(links))};
  }
  if (late <= tolerated) return {};
  const auto more = [&](double RankTimes::*field) {
    return times[slow].*field - LowerMedian(Column(times, field));
  };
  const bool is_input = more(&RankTimes::input) > more(&RankTimes::compute);
  const auto field = is_input ? &RankTimes::input : &RankTimes::compute;
  const std::string delay =
      fmt::format("it joins the reductions {:.1f} ms late in each step", late);
  if (more(field) < late / 2)
    return {.rank = static_cast<int>(slow),
            .delay_ms = late,
            .why = delay + "; its input and compute take no longer than on the median rank"};
  return {.rank = static_cast<int>(slow),
          .cause = is_input ? StragglerCause::kInput : StragglerCause::kCompute,
          .delay_ms = late,
          .why = fmt::format("{}; its {} takes {:.1f} ms per step, {:.1f} ms on the median rank",
                             delay, is_input ? "input" : "compute", times[slow].*field,
                             LowerMedian(Column(times, field)))};
}

bool StragglerDetector::AddStep(RankTimes times, int64_t step) {
  if (communicator_.size() == 1) return false;
  for (auto field : {&RankTimes::step, &RankTimes::input, &RankTimes::compute, &RankTimes::waited})
    sum_.*field += times.*field;
  if (++num_steps_ < kSteps) return false;
  AddWaitStats();
  for (auto field : {&RankTimes::step, &RankTimes::input, &RankTimes::compute, &RankTimes::waited,
                     &RankTimes::link})
    sum_.*field /= num_steps_;
  const std::vector<RankTimes> all =
      AllGather(communicator_, sum_, {.what = "times", .step = step});
  sum_ = {};
  num_steps_ = 0;
  return communicator_.rank() == 0 && Report(all, step);
}

void StragglerDetector::AddWaitStats() {
  const collectives::WaitStats stats = diagnostics_.TakeWaitStats();
  sum_.waited += stats.waited_seconds * 1e3;
  sum_.link += stats.link_seconds * 1e3;
}

bool StragglerDetector::Report(std::span<const RankTimes> times, int64_t step) {
  const Straggler found = FindStraggler(times);
  const std::string name = found.rank < 0 ? "" : communicator_.NameOf(found.rank);
  const double seconds = times[0].step * 1e-3 * kSteps;
  const std::string line = log_.Add(found, name, kSteps, seconds, now_());
  if (line.empty()) return false;
  LogWarning("straggler", "step {}: {}", step, line);
  return true;
}

}  // namespace carole::train
