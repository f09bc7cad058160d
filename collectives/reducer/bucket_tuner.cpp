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

constexpr int kWarmUpSteps = 1;  // of a turn: caches, and what the turn before left in flight
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

// What others do on the machine only ever adds to a time; the fastest one of all may be luck.
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

// Unless it is there.
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

void BucketTuner::Count(double step_ms) {
  trials_[trial_].step_ms.push_back(step_ms);
  trials_[trial_].exposed_ms.push_back(reducer_.exposed_ms());
  if (trials_.size() > 1) return;
  for (size_t p = 0; p < ready_ms_.size(); ++p) ready_ms_[p] += reducer_.ready_ms()[p];
}

void BucketTuner::AfterStep(double step_ms) {
  if (done()) return;
  if (step_++ >= kWarmUpSteps) Count(step_ms);
  if (step_ < kWarmUpSteps + kTimedSteps) return;
  if (trials_.size() == 1) AddCandidates();
  step_ = 0;
  trial_ = (trial_ + 1) % trials_.size();
  if (trial_ == 0) round_ = trials_.size() == 1 ? kRounds : round_ + 1;
  done() ? Choose() : reducer_.SetBuckets(trials_[trial_].buckets);
}

// The same figures on every rank, so that all plan alike.
void BucketTuner::MeasureNetwork() {
  constexpr int kTimes = 5;
  constexpr size_t kSmall = 256;
  const std::span<float> all = reducer_.gradients();
  const std::span<float> few = all.first(std::min(kSmall, all.size()));
  const Tag tag{.what = "bucket measurement", .may_round = true};
  communicator_.AllReduce(all, tag);  // an algorithm may have to be chosen first
  communicator_.AllReduce(few, tag);
  latency_ms_ = MeanOverRanks(FastestMs(kTimes, [&] { communicator_.AllReduce(few, tag); }));
  const double whole_ms =
      MeanOverRanks(FastestMs(kTimes, [&] { communicator_.AllReduce(all, tag); }));
  const auto bytes = static_cast<double>(all.size_bytes());
  ms_per_byte_ = std::max(0.0, whole_ms - latency_ms_) / bytes;
  report_.bound_ms = whole_ms;
  report_.gb_per_second = AllReduceShare(communicator_.size()) * bytes / whole_ms * 1e-6;
}

void BucketTuner::AddCandidates() {
  MeasureNetwork();
  communicator_.AllReduce(std::span(ready_ms_), {.what = "bucket times"});
  for (double& ms : ready_ms_) ms /= kTimedSteps * communicator_.size();
  const auto parameters = reducer_.parameters();
  const BucketTimes times{
      .ready_ms = ready_ms_, .latency_ms = latency_ms_, .ms_per_byte = ms_per_byte_};
  const BucketOptions whole{.first_bucket_bytes = reducer_.gradients().size_bytes()};
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
  LogInfo("comm",
          "buckets    {} for {:.1f} MB of gradients: {:.2f} ms exposed in a step of {:.1f} ms; "
          "bound 2(p-1)/p*n/B = {:.2f} ms at {:.2f} GB/s",
          report_.num_buckets, static_cast<double>(reducer_.gradients().size_bytes()) * 1e-6,
          report_.exposed_ms, report_.step_ms, report_.bound_ms, report_.gb_per_second);
}

}  // namespace carole::collectives
