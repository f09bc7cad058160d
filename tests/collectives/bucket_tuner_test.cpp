#include "collectives/bucket_tuner.h"

#include <gtest/gtest.h>

#include <random>

#include "src/core/error.h"
#include "tests/support/run_ranks.h"

namespace carole::testing {
namespace {

using collectives::Bucket;
using collectives::BucketTimes;
using collectives::BucketTuner;
using collectives::FinishMs;
using collectives::HashOfPlan;
using collectives::PlanBuckets;
using collectives::PlanBucketsByTime;
using collectives::Range;

std::vector<Range> EqualParameters(size_t num, size_t count) {
  std::vector<Range> parameters;
  for (size_t i = 0; i < num; ++i) parameters.push_back({i * count, count});
  return parameters;
}

// Bucket ends where bit i of `cuts` is set, and at the end.
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

TEST(BucketsByTime, NoOtherPlanFinishesEarlier) {
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
    double best = 1e300;
    for (unsigned cuts = 0; cuts < 1u << (kNum - 1); ++cuts)
      best = std::min(best, FinishMs(Cut(parameters, cuts), sizeof(float), times));
    const auto buckets = PlanBucketsByTime(parameters, sizeof(float), times);
    EXPECT_DOUBLE_EQ(FinishMs(buckets, sizeof(float), times), best);
  }
}

TEST(BucketsByTime, OneBucketWhereLatencyRules) {
  const auto parameters = EqualParameters(5, 10);
  const std::vector<double> ready = {1, 2, 3, 4, 5};
  EXPECT_EQ(PlanBucketsByTime(parameters, 4, {ready, 100, 1e-6}).size(), 1);
  EXPECT_EQ(PlanBucketsByTime(parameters, 4, {ready, 0, 1e-3}).size(), 5);
}

// Steps of two ranks, until the tuner has chosen.
TEST(BucketTuner, ChoosesOnePlanForAllRanks) {
  std::vector<uint64_t> plans(2);
  RunRanks(2, [&](Communicator& c) {
    constexpr size_t kNum = 6, kCount = 1000;
    std::vector<float> gradients(kNum * kCount, 0.0f);
    collectives::Reducer reducer(c, gradients, EqualParameters(kNum, kCount),
                                 {.first_bucket_bytes = 4 * kCount, .bucket_bytes = 8 * kCount});
    BucketTuner tuner(c, reducer);
    std::vector<size_t> sizes;
    for (int step = 0; step < 100 && !tuner.done(); ++step) {
      std::fill(gradients.begin(), gradients.end(), 1.0f);
      sizes.push_back(reducer.buckets().size());
      reducer.BeginStep(step);
      for (size_t p = 0; p < kNum; ++p) reducer.MarkReady(static_cast<int>(p));
      while (reducer.WaitNext()) continue;
      EXPECT_EQ(gradients.back(), 2.0f);
      tuner.AfterStep(reducer.buckets().size() == 1 ? 1.0 : 2.0 + c.rank());
    }
    ASSERT_TRUE(tuner.done());
    EXPECT_EQ(sizes.front(), 4);
    EXPECT_EQ(reducer.buckets().size(), 1);  // its steps were the fastest
    EXPECT_EQ(tuner.report().step_ms, 1.0);
    EXPECT_GT(tuner.report().bound_ms, 0);
    EXPECT_GT(tuner.report().gb_per_second, 0);
    plans[c.rank()] = HashOfPlan(reducer.buckets());
  });
  EXPECT_EQ(plans[0], plans[1]);
}

TEST(BucketTuner, OneRankHasNothingToFind) {
  RunRanks(1, [](Communicator& c) {
    std::vector<float> gradients(10);
    collectives::Reducer reducer(c, gradients, EqualParameters(1, 10));
    EXPECT_TRUE(BucketTuner(c, reducer).done());
  });
}

TEST(Reducer, OtherBucketsAreAgreedOn) {
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
