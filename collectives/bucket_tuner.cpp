#include "collectives/bucket_tuner.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "src/core/check.h"
#include "src/core/log.h"

namespace carole::collectives {
namespace {

constexpr int kWarmUpSteps = 2;  // of each trial: caches, and what the last trial left in flight
constexpr int kTimedSteps = 4;

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

}  // namespace

BucketTuner::BucketTuner(Communicator& communicator, Reducer& reducer)
    : communicator_(communicator), reducer_(reducer), ready_ms_(reducer.parameters().size(), 0) {
  trials_.push_back(
      {.buckets = {reducer.buckets().begin(), reducer.buckets().end()}, .step_ms = {}});
  if (communicator.size() == 1) trial_ = trials_.size();
}

double BucketTuner::MeanOverRanks(double value) {
  communicator_.AllReduce(std::span(&value, 1), {.what = "bucket times"});
  return value / communicator_.size();
}

void BucketTuner::AfterStep(double step_ms) {
  if (done()) return;
  Trial& trial = trials_[trial_];
  if (step_++ >= kWarmUpSteps) {
    trial.step_ms.push_back(step_ms);
    trial.exposed_ms += reducer_.stats().exposed_ms / kTimedSteps;
    for (size_t p = 0; trial_ == 0 && p < ready_ms_.size(); ++p)
      ready_ms_[p] += reducer_.ready_ms()[p];
  }
  if (step_ < kWarmUpSteps + kTimedSteps) return;
  if (trial_ == 0) AddCandidates();
  step_ = 0;
  if (++trial_ < trials_.size()) return reducer_.SetBuckets(trials_[trial_].buckets);
  Choose();
}

// The same figures on every rank, so that all plan alike.
void BucketTuner::MeasureNetwork() {
  constexpr int kTimes = 5;
  constexpr size_t kSmall = 256;
  const std::span<float> all = reducer_.gradients();
  const std::span<float> few = all.first(std::min(kSmall, all.size()));
  const Tag tag{.what = "bucket measurement"};
  communicator_.AllReduce(all, tag);  // an algorithm may have to be chosen first
  communicator_.AllReduce(few, tag);
  latency_ms_ = MeanOverRanks(FastestMs(kTimes, [&] { communicator_.AllReduce(few, tag); }));
  const double whole_ms =
      MeanOverRanks(FastestMs(kTimes, [&] { communicator_.AllReduce(all, tag); }));
  const auto bytes = static_cast<double>(all.size_bytes());
  ms_per_byte_ = std::max(0.0, whole_ms - latency_ms_) / bytes;
  report_.bound_ms = whole_ms;
  const double p = communicator_.size();
  report_.gb_per_second = 2 * (p - 1) / p * bytes / whole_ms * 1e-6;
}

void BucketTuner::AddCandidates() {
  MeasureNetwork();
  communicator_.AllReduce(std::span(ready_ms_), {.what = "bucket times"});
  for (double& ms : ready_ms_) ms /= kTimedSteps * communicator_.size();
  const auto parameters = reducer_.parameters();
  const BucketTimes times{
      .ready_ms = ready_ms_, .latency_ms = latency_ms_, .ms_per_byte = ms_per_byte_};
  const BucketOptions whole{.first_bucket_bytes = reducer_.gradients().size_bytes()};
  for (auto& buckets : {PlanBucketsByTime(parameters, sizeof(float), times),
                        PlanBuckets(parameters, sizeof(float), whole)}) {
    const bool is_known = std::any_of(trials_.begin(), trials_.end(), [&](const Trial& t) {
      return HashOfPlan(t.buckets) == HashOfPlan(buckets);
    });
    if (!is_known) trials_.push_back({.buckets = buckets, .step_ms = {}});
  }
}

void BucketTuner::Choose() {
  const Trial* best = &trials_.front();
  for (Trial& trial : trials_) {
    std::nth_element(trial.step_ms.begin(), trial.step_ms.begin() + 1, trial.step_ms.end());
    const double step_ms = MeanOverRanks(trial.step_ms[1]);
    if (&trial != best && step_ms >= report_.step_ms) continue;
    best = &trial;
    report_.step_ms = step_ms;
  }
  report_.exposed_ms = MeanOverRanks(best->exposed_ms);
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
