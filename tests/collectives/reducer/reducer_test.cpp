#include "collectives/reducer/reducer.h"

#include <gtest/gtest.h>

#include "src/core/error.h"
#include "tests/support/run_ranks.h"

namespace carole::testing {
namespace {

using collectives::Bucket;
using collectives::BucketBytesFor;
using collectives::HashOfPlan;
using collectives::kMaxBucketBytes;
using collectives::kMinBucketBytes;
using collectives::PlanBuckets;
using collectives::Range;

TEST(Bucketing, TheFirstBucketIsSmallAndTheOthersAreFull) {
  const std::vector<Range> parameters = {{0, 10}, {10, 10}, {32, 40}, {72, 8}, {80, 50}, {130, 5}};
  const auto buckets =
      PlanBuckets(parameters, sizeof(float), {.first_bucket_bytes = 80, .bucket_bytes = 200});
  ASSERT_EQ(buckets.size(), 3);
  EXPECT_EQ(buckets[0].range, (Range{0, 20}));
  EXPECT_EQ(buckets[1].range,
            (Range{32, 98}));  // 40 + 8 elements are less than 50, so the next 50 join them
  EXPECT_EQ(buckets[1].first, 2);
  EXPECT_EQ(buckets[1].num, 3);
  EXPECT_EQ(buckets[2].range, (Range{130, 5}));
}

TEST(Bucketing, TheLastBucketIsSmall) {
  std::vector<Range> parameters;
  for (size_t p = 0; p < 6; ++p) parameters.push_back({p * 128, 100});  // with gaps
  const auto sizes = [&](size_t last_bucket_bytes) {
    std::vector<int> parameters_of_buckets;
    for (const Bucket& bucket : PlanBuckets(parameters, sizeof(float),
                                            {.first_bucket_bytes = 400,
                                            .bucket_bytes = 4000,
                                            .last_bucket_bytes = last_bucket_bytes}))
      parameters_of_buckets.push_back(bucket.num);
    return parameters_of_buckets;
  };
  EXPECT_EQ(sizes(0), (std::vector{1, 5}));
  EXPECT_EQ(sizes(4 * 227), (std::vector{1, 4, 1})) << "two parameters take 228 elements";
  EXPECT_EQ(sizes(4 * 228), (std::vector{1, 3, 2}));
  EXPECT_EQ(sizes(1), (std::vector{1, 4, 1})) << "one parameter at least";
  EXPECT_EQ(sizes(4 * 612), (std::vector{1, 5})) << "it is small enough";
}

TEST(Bucketing, LatencyTakesATwentiethOfTheTime) {
  constexpr double kLatencyUs = 20;
  constexpr double kUsPerByte = 1e-4;  // 10 GB/s
  const auto bytes = static_cast<double>(BucketBytesFor(kLatencyUs, kUsPerByte));
  EXPECT_NEAR(kLatencyUs / (kLatencyUs + bytes * kUsPerByte), 0.05, 1e-6);
}

TEST(Bucketing, TheSizeThatFollowsFromTheNetworkHasLimits) {
  EXPECT_EQ(BucketBytesFor(0, 1e-4), kMinBucketBytes);
  EXPECT_EQ(BucketBytesFor(50, 1e-2), kMinBucketBytes) << "a slow network";
  EXPECT_EQ(BucketBytesFor(50, 1e-6), kMaxBucketBytes) << "a fast network";
  EXPECT_EQ(BucketBytesFor(50, 0), kMaxBucketBytes);
  EXPECT_EQ(BucketBytesFor(0, 0), kMaxBucketBytes);
}

TEST(Bucketing, GapsInsideABucketTravelAlong) {
  const auto buckets = PlanBuckets(std::vector<Range>{{0, 10}, {16, 10}}, sizeof(float));
  ASSERT_EQ(buckets.size(), 1);
  EXPECT_EQ(buckets[0].range, (Range{0, 26}));
}

TEST(Bucketing, RefusesOverlappingParameters) {
  EXPECT_THROW(PlanBuckets(std::vector<Range>{{0, 10}, {9, 10}}, sizeof(float)), InternalError);
}

TEST(Bucketing, DifferentPlansHaveDifferentHashes) {
  const std::vector<Range> a = {{0, 10}, {10, 10}};
  const std::vector<Range> b = {{0, 10}, {10, 11}};
  EXPECT_EQ(HashOfPlan(PlanBuckets(a, 4)), HashOfPlan(PlanBuckets(a, 4)));
  EXPECT_NE(HashOfPlan(PlanBuckets(a, 4)), HashOfPlan(PlanBuckets(b, 4)));
  EXPECT_NE(HashOfPlan(PlanBuckets(a, 4)),
            HashOfPlan(PlanBuckets(a, 4, {.first_bucket_bytes = 4})));
}

TEST(Reducer, OneRankGetsItsGradientsBackUnchanged) {
  RunRanks(1, [](Communicator& c) {
    std::vector<float> gradients = {1, 2, 3};
    collectives::Reducer reducer(c, gradients, {{0, 1}, {1, 2}}, {.first_bucket_bytes = 1});
    reducer.BeginStep(0);
    reducer.MarkReady(0);
    EXPECT_EQ(reducer.WaitNext(),
              (Range{0, 1}));  // while the second gradient is still being computed
    reducer.MarkReady(1);
    EXPECT_EQ(reducer.WaitNext(), (Range{1, 2}));
    EXPECT_EQ(reducer.WaitNext(), std::nullopt);
    EXPECT_EQ(gradients, (std::vector<float>{1, 2, 3}));
  });
}

TEST(Reducer, LaterBucketsWaitForEarlierOnes) {
  RunRanks(2, [](Communicator& c) {
    std::vector<float> gradients(4, static_cast<float>(c.rank() + 1));
    collectives::Reducer reducer(c, gradients, {{0, 2}, {2, 2}}, {.first_bucket_bytes = 1});
    reducer.BeginStep(0);
    reducer.MarkReady(1);
    EXPECT_THROW(reducer.WaitNext(), InternalError);  // the first bucket has not started
    EXPECT_EQ(gradients[2], static_cast<float>(c.rank() + 1));
    reducer.MarkReady(0);
    while (reducer.WaitNext()) continue;
    EXPECT_EQ(gradients, std::vector<float>(4, 3.0f));
  });
}

TEST(Reducer, RefusesMarkingTwiceAndUnfinishedSteps) {
  RunRanks(1, [](Communicator& c) {
    std::vector<float> gradients(2);
    collectives::Reducer reducer(c, gradients, {{0, 1}, {1, 1}});
    EXPECT_THROW(reducer.MarkReady(0), InternalError);  // before BeginStep
    reducer.BeginStep(0);
    reducer.MarkReady(0);
    EXPECT_THROW(reducer.MarkReady(0), InternalError);
    EXPECT_THROW(reducer.BeginStep(1), InternalError);
  });
}

}  // namespace
}  // namespace carole::testing
