// How bucket plans are chosen by measurement.
//
// The goal. Few large buckets pay the latency of an all-reduce seldom, but start late. Many small
// buckets start early, but pay it often. Also, communication takes cores and memory bandwidth from
// backward; where it slows backward down by more than it hides, one bucket after backward is best.
// Which plan wins depends on the net, the machine and the network, so the tuner tries it out.
//
// The candidates:
//   1. the plan that the reducer has: buckets by size (PlanBuckets);
//   2. the plan that would finish first, computed from the times at which gradients become final
//      and from the measured latency and bandwidth (PlanBucketsByTime);
//   3. one bucket for all gradients.
// Equal plans count once.
//
// The phases:
//   - A turn is one warm-up step and two timed steps with one candidate. The warm-up step fills the
//     caches and absorbs what the turn before left in flight.
//   - In the first turn (candidate 1) the tuner also records when each gradient became final. Then
//     it measures the network: the fastest of five all-reduces of 256 floats gives the latency, and
//     the fastest of five of the whole arena gives the time per byte. Now candidates 2 and 3 are
//     known.
//   - The candidates take turns in three rounds, 27 steps in all. If the machine is slow for a
//     while, it is slow for all of them.
//   - A candidate's time is the lower quartile of its six timed steps, averaged over ranks. Other
//     processes can only add to a time, so a low value is better than the mean. The minimum of all
//     would be a matter of luck. The fastest candidate stays.
// All times are averaged over ranks, so all ranks plan and choose alike.
//
//   Example of candidate 2: 4 gradients of 4 MB are final at 10, 20, 30 and 40 ms. A bucket takes
//   1 ms + 1 ms/MB.
//     one bucket:      starts at 40, is complete at 57 ms
//     four buckets:    10-15, 20-25, 30-35, 40-45: complete at 45 ms
//     {1} {2, 3} {4}:  10-15, 30-39, 40-45: complete at 45 ms as well, with fewer buckets
//   No plan is complete earlier, and none with two buckets by 45 ms. So the third one is chosen.
//
// The log shows the result next to the bound 2(p-1)/p * n/B, for p ranks, n bytes and bandwidth B.
#include "collectives/reducer/bucket_tuner.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include "src/core/check.h"
#include "src/core/log.h"

namespace carole::collectives {
namespace {

// Steps of a turn.
constexpr int kWarmUpSteps = 1;
constexpr int kTimedSteps = 2;

double FastestMs(int times, const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  double fastest = 1e300;
  for (int i = 0; i < times; ++i) {
    const Clock::time_point start = Clock::now();
    work();
    const std::chrono::duration<double, std::milli> took = Clock::now() - start;
    fastest = std::min(fastest, took.count());
  }
  return fastest;
}

double LowerQuartile(std::vector<double> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 4);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

}  // namespace

BucketTuner::BucketTuner(Communicator& communicator, Reducer& reducer)
    : communicator_(communicator), reducer_(reducer), ready_ms_(reducer.parameters().size(), 0) {
  AddTrial({reducer.buckets().begin(), reducer.buckets().end()});
  if (communicator.size() == 1) round_ = kRounds;
}

// Adds a candidate, unless there is one with the same plan.
void BucketTuner::AddTrial(std::vector<Bucket> buckets) {
  const uint64_t plan = HashOfPlan(buckets);
  const auto is_same = [plan](const Trial& trial) { return HashOfPlan(trial.buckets) == plan; };
  if (std::none_of(trials_.begin(), trials_.end(), is_same))
    trials_.push_back({.buckets = std::move(buckets), .step_ms = {}, .exposed_ms = {}});
}

double BucketTuner::MeanOverRanks(double value) {
  communicator_.AllReduce(std::span(&value, 1), {.what = "bucket times"});
  return value / communicator_.size();
}

void BucketTuner::RecordStep(double step_ms) {
  trials_[trial_].step_ms.push_back(step_ms);
  trials_[trial_].exposed_ms.push_back(reducer_.exposed_ms());
  if (trials_.size() > 1) return;
  for (size_t p = 0; p < ready_ms_.size(); ++p) ready_ms_[p] += reducer_.ready_ms()[p];
}

void BucketTuner::AfterStep(double step_ms) {
  if (done()) return;
  if (step_++ >= kWarmUpSteps) RecordStep(step_ms);
  if (step_ < kWarmUpSteps + kTimedSteps) return;
  if (trials_.size() == 1) AddCandidates();
  step_ = 0;
  trial_ = (trial_ + 1) % trials_.size();
  if (trial_ == 0) round_ = trials_.size() == 1 ? kRounds : round_ + 1;
  done() ? Choose() : reducer_.SetBuckets(trials_[trial_].buckets);
}

// Measures latency and time per byte. The values are the same on every rank.
void BucketTuner::MeasureNetwork() {
  constexpr int kTimes = 5;
  constexpr size_t kSmall = 256;
  const std::span<float> all = reducer_.gradients();
  const std::span<float> few = all.first(std::min(kSmall, all.size()));
  const Tag tag{.what = "bucket measurement", .may_round = true};
  communicator_.AllReduce(all, tag);  // the algorithm "auto" may measure itself in the first call
  communicator_.AllReduce(few, tag);
  latency_ms_ = MeanOverRanks(FastestMs(kTimes, [&] { communicator_.AllReduce(few, tag); }));
  const double whole_ms =
      MeanOverRanks(FastestMs(kTimes, [&] { communicator_.AllReduce(all, tag); }));
  const auto bytes = static_cast<double>(all.size_bytes());
  ms_per_byte_ = std::max(0.0, whole_ms - latency_ms_) / bytes;
  report_.bound_ms = whole_ms;
  report_.gb_per_second = AllReduceBusFactor(communicator_.size()) * bytes / whole_ms * 1e-6;
}

void BucketTuner::AddCandidates() {
  MeasureNetwork();
  communicator_.AllReduce(std::span(ready_ms_), {.what = "bucket times"});
  for (double& ms : ready_ms_) ms /= kTimedSteps * communicator_.size();
  const auto parameters = reducer_.parameters();
  const BucketTimes times{
      .ready_ms = ready_ms_, .latency_ms = latency_ms_, .ms_per_byte = ms_per_byte_};
  const BucketOptions whole{.first_bucket_bytes = reducer_.gradients().size_bytes(),
                            .last_bucket_bytes = 0};
  AddTrial(PlanBucketsByTime(parameters, sizeof(float), times));
  AddTrial(PlanBuckets(parameters, sizeof(float), whole));
}

void BucketTuner::Choose() {
  const Trial* best = &trials_.front();
  for (const Trial& trial : trials_) {
    const double step_ms = MeanOverRanks(LowerQuartile(trial.step_ms));
    if (&trial != best && step_ms >= report_.step_ms) continue;
    best = &trial;
    report_.step_ms = step_ms;
  }
  report_.exposed_ms = MeanOverRanks(LowerQuartile(best->exposed_ms));
  report_.num_buckets = static_cast<int>(best->buckets.size());
  reducer_.SetBuckets(best->buckets);
  if (communicator_.rank() != 0) return;
  LogInfo(
      "comm",
      "buckets    {} for {:.1f} MB of gradients: {:.2f} ms of exposed communication in a step of "
      "{:.1f} ms; bound 2(p-1)/p*n/B = {:.2f} ms at {:.2f} GB/s",
      report_.num_buckets, static_cast<double>(reducer_.gradients().size_bytes()) * 1e-6,
      report_.exposed_ms, report_.step_ms, report_.bound_ms, report_.gb_per_second);
}

}  // namespace carole::collectives
