#include "collectives/reducer/bucket_tuner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <random>

#include "src/core/error.h"
#include "tests/support/run_ranks.h"

namespace carole::testing {
namespace {

using collectives::Bucket;
using collectives::BucketTimes;
using collectives::BucketTuner;
using collectives::HashOfPlan;
using collectives::PlanBuckets;
using collectives::PlanBucketsByTime;
using collectives::Range;

std::vector<Range> EqualParameters(size_t num, size_t count) {
  std::vector<Range> parameters;
  for (size_t i = 0; i < num; ++i) parameters.push_back({i * count, count});
  return parameters;
}

// Makes buckets that end after parameter i if bit i of `cuts` is set, and at the end.
std::vector<Bucket> Cut(const std::vector<Range>& parameters, unsigned cuts) {
  std::vector<Bucket> buckets;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (i == 0 || (cuts >> (i - 1) & 1) != 0)
      buckets.push_back({static_cast<int>(i), 0, {parameters[i].offset, 0}});
    ++buckets.back().num;
    buckets.back().range.count += parameters[i].count;
  }
  return buckets;
}

// Returns the time at which the sum of the last bucket is complete.
double FinishMs(const std::vector<Bucket>& buckets, const BucketTimes& times) {
  double now = 0;
  for (const Bucket& b : buckets) {
    for (int p = b.first; p < b.first + b.num; ++p) now = std::max(now, times.ready_ms[p]);
    now +=
        times.latency_ms + static_cast<double>(b.range.count * sizeof(float)) * times.ms_per_byte;
  }
  return now;
}

TEST(BucketsByTime, NoOtherPlanFinishesEarlierOrAsEarlyWithFewerBuckets) {
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    constexpr size_t kNum = 8;
    std::vector<Range> parameters;
    std::vector<double> ready;
    size_t offset = 0;
    double now = 0;
    for (size_t i = 0; i < kNum; ++i) {
      const size_t count = 1 + random() % 1000;
      parameters.push_back({offset, count});
      offset += count;
      ready.push_back(now += random() % 100 * 0.1);
    }
    const BucketTimes times{
        .ready_ms = ready, .latency_ms = random() % 50 * 0.1, .ms_per_byte = 1e-3};
    const auto finish = [&](unsigned cuts) { return FinishMs(Cut(parameters, cuts), times); };
    constexpr unsigned kPlans = 1u << (kNum - 1);
    double best = 1e300;
    for (unsigned cuts = 0; cuts < kPlans; ++cuts) best = std::min(best, finish(cuts));
    int fewest = kNum;
    for (unsigned cuts = 0; cuts < kPlans; ++cuts) {
      if (finish(cuts) <= best * (1 + 1e-9)) fewest = std::min(fewest, 1 + std::popcount(cuts));
    }
    const auto buckets = PlanBucketsByTime(parameters, sizeof(float), times);
    EXPECT_NEAR(FinishMs(buckets, times), best, best * 1e-8);
    EXPECT_EQ(buckets.size(), fewest);
  }
}

TEST(BucketsByTime, MakesAsManyBucketsAsTheNetworkNeeds) {
  const auto parameters = EqualParameters(5, 10);
  const std::vector<double> ready = {1, 2, 3, 4, 5};
  EXPECT_EQ(PlanBucketsByTime(parameters, 4, {ready, 100, 1e-6}).size(), 1);
  // If the network is as slow as backward, it must start with each gradient. A fast network can
  // wait for the last gradient.
  EXPECT_EQ(PlanBucketsByTime(parameters, 4, {ready, 0, 0.025}).size(), 5);
  EXPECT_EQ(PlanBucketsByTime(parameters, 4, {ready, 0, 1e-3}).size(), 2);
}

// The observations of a rank while it ran steps until the tuner had chosen.
struct Tuned {
  std::vector<size_t> sizes;  // number of buckets in each step, and of the chosen plan
  BucketTuner::Report report;
  uint64_t plan = 0;
};

// Runs steps on two ranks. step_ms() decides how long a step takes, from the number of the step and
// of buckets.
std::vector<Tuned> Tune(size_t num_parameters,
                        const std::function<double(size_t step, size_t buckets)>& step_ms) {
  std::vector<Tuned> tuned(2);
  RunRanks(2, [&](Communicator& c) {
    constexpr size_t kCount = 1000;
    std::vector<float> gradients(num_parameters * kCount, 0.0f);
    collectives::Reducer reducer(c, gradients, EqualParameters(num_parameters, kCount),
                                 {.first_bucket_bytes = 4 * kCount, .bucket_bytes = 8 * kCount});
    BucketTuner tuner(c, reducer);
    Tuned& mine = tuned[c.rank()];
    for (size_t step = 0; step < 100 && !tuner.done(); ++step) {
      std::fill(gradients.begin(), gradients.end(), 1.0f);
      mine.sizes.push_back(reducer.buckets().size());
      reducer.BeginStep(static_cast<int64_t>(step));
      for (size_t p = 0; p < num_parameters; ++p) reducer.MarkReady(static_cast<int>(p));
      while (reducer.WaitNext()) continue;
      EXPECT_EQ(gradients.back(), 2.0f);
      tuner.AfterStep(step_ms(step, reducer.buckets().size()) * (1 + c.rank()));
    }
    ASSERT_TRUE(tuner.done());
    mine.sizes.push_back(reducer.buckets().size());
    mine.report = tuner.report();
    mine.plan = HashOfPlan(reducer.buckets());
  });
  return tuned;
}

TEST(BucketTuner, ChoosesOnePlanForAllRanks) {
  const auto tuned = Tune(6, [](size_t, size_t buckets) { return buckets == 1 ? 1.0 : 2.0; });
  for (const Tuned& t : tuned) {
    EXPECT_EQ(t.sizes.front(), 4);
    EXPECT_EQ(t.sizes.back(), 1);  // because its steps were the fastest
    EXPECT_EQ(t.report.num_buckets, 1);
    EXPECT_EQ(t.report.step_ms, 1.5);  // the mean over the ranks
    EXPECT_GT(t.report.bound_ms, 0);
    EXPECT_GT(t.report.gb_per_second, 0);
  }
  EXPECT_EQ(tuned[0].plan, tuned[1].plan);
}

// If plans were tried one after the other, the plan that is tried while the machine is slow would
// lose.
TEST(BucketTuner, ATemporarilySlowMachineDoesNotChangeTheChoice) {
  const auto tuned = Tune(6, [](size_t step, size_t buckets) {
    return (buckets == 4 ? 1.0 : 2.0) * (step < 7 ? 10 : 1);
  });
  EXPECT_EQ(tuned[0].sizes.back(), 4);
  EXPECT_EQ(tuned[0].plan, tuned[1].plan);
}

TEST(BucketTuner, WithOneCandidateOneTurnIsEnough) {
  const auto tuned = Tune(1, [](size_t, size_t) { return 1.0; });
  EXPECT_EQ(tuned[0].sizes.size(), 4);  // a warm-up step, two timed steps, and the chosen plan
}

TEST(BucketTuner, IsDoneAtOnceWithOneRank) {
  RunRanks(1, [](Communicator& c) {
    std::vector<float> gradients(10);
    collectives::Reducer reducer(c, gradients, EqualParameters(1, 10));
    EXPECT_TRUE(BucketTuner(c, reducer).done());
  });
}

TEST(Reducer, RefusesNewBucketsThatDifferBetweenRanks) {
  const auto errors = ErrorsOfRanks(2, [](Communicator& c) {
    const auto parameters = EqualParameters(3, 10);
    std::vector<float> gradients(30);
    collectives::Reducer reducer(c, gradients, parameters);
    const size_t limit = c.rank() == 0 ? 4 : 400;
    reducer.SetBuckets(PlanBuckets(parameters, 4, {.first_bucket_bytes = limit}));
  });
  for (const std::string& error : errors) EXPECT_NE(error.find("bucket plan"), std::string::npos);
}

TEST(Reducer, RefusesBucketsThatLeaveParametersOut) {
  RunRanks(1, [](Communicator& c) {
    std::vector<float> gradients(30);
    collectives::Reducer reducer(c, gradients, EqualParameters(3, 10));
    EXPECT_THROW(reducer.SetBuckets({{0, 2, {0, 20}}}), InternalError);
    EXPECT_THROW(reducer.SetBuckets({{0, 2, {0, 20}}, {1, 1, {20, 10}}}), InternalError);
  });
}

}  // namespace
}  // namespace carole::testing
