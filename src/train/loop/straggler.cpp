#include "src/train/loop/straggler.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "src/core/log.h"

namespace carole::train {
namespace {

constexpr double kTolerated = 0.05;  // of a step

std::vector<double> Column(std::span<const RankTimes> times, double RankTimes::*field) {
  std::vector<double> column;
  for (const RankTimes& t : times) column.push_back(t.*field);
  return column;
}

double Ranked(std::vector<double> values, size_t place) {
  std::sort(values.begin(), values.end());
  return values[place];
}

// Of two in the middle the lower one: of two ranks the better. Upper: for times that ranks wait.
double Median(const std::vector<double>& values) { return Ranked(values, (values.size() - 1) / 2); }
double UpperMedian(const std::vector<double>& values) { return Ranked(values, values.size() / 2); }

}  // namespace

Straggler FindStraggler(std::span<const RankTimes> times) {
  const double tolerated = kTolerated * Median(Column(times, &RankTimes::step));
  const std::vector<double> waited = Column(times, &RankTimes::waited);
  const auto least = std::min_element(waited.begin(), waited.end());
  const auto slow = static_cast<size_t>(least - waited.begin());
  const double late = UpperMedian(waited) - times[slow].waited;

  // A slow link holds up everybody alike, on both sides of it.
  const std::vector<double> links = Column(times, &RankTimes::link);
  const auto worst = std::max_element(links.begin(), links.end());
  const double lost = *worst - Median(links);
  if (lost > std::max(late, tolerated)) {
    return {.rank = static_cast<int>(worst - links.begin()),
            .why = fmt::format("the network that leads to it: sums would take {:.1f} ms a step at "
                               "its pace, {:.1f} ms elsewhere",
                               *worst, Median(links))};
  }
  if (late <= tolerated) return {};
  const auto more = [&](double RankTimes::*field) {
    return times[slow].*field - Median(Column(times, field));
  };
  const bool is_input = more(&RankTimes::input) > more(&RankTimes::compute);
  const auto field = is_input ? &RankTimes::input : &RankTimes::compute;
  const std::string held = fmt::format("comes {:.1f} ms late to a step's sums", late);
  if (more(field) < late / 2)
    return {.rank = static_cast<int>(slow), .why = held + "; its own work takes no longer"};
  return {.rank = static_cast<int>(slow),
          .why = fmt::format("{}; {} takes {:.1f} ms a step there, {:.1f} ms elsewhere", held,
                             is_input ? "input" : "computing", times[slow].*field,
                             Median(Column(times, field)))};
}

void StragglerWatch::AddStep(RankTimes times, int64_t step) {
  constexpr int kSteps = 50;
  if (communicator_.size() == 1) return;
  for (auto field : {&RankTimes::step, &RankTimes::input, &RankTimes::compute})
    sum_.*field += times.*field;
  if (++num_steps_ < kSteps) return;
  AddWaits();
  for (auto field : {&RankTimes::step, &RankTimes::input, &RankTimes::compute, &RankTimes::waited,
                     &RankTimes::link})
    sum_.*field /= num_steps_;
  const std::vector<RankTimes> all =
      AllGather(communicator_, sum_, {.what = "times", .step = step});
  sum_ = {};
  num_steps_ = 0;
  if (communicator_.rank() == 0) Report(all, step);
}

void StragglerWatch::AddWaits() {
  const collectives::WaitStats stats = communicator_.TakeWaitStats();
  sum_.waited += stats.waited_seconds * 1e3;
  sum_.link += stats.link_seconds * 1e3;
}

void StragglerWatch::Report(std::span<const RankTimes> times, int64_t step) {
  constexpr auto kPause = std::chrono::minutes(1);
  const Straggler found = FindStraggler(times);
  const auto now = std::chrono::steady_clock::now();
  const bool is_news = found.rank != last_rank_ || now - last_report_ >= kPause;
  last_rank_ = found.rank;
  if (found.rank < 0 || !is_news) return;
  last_report_ = now;
  LogWarning("straggler", "step {}: {} holds up the others: {}", step,
             communicator_.NameOf(found.rank), found.why);
}

}  // namespace carole::train
