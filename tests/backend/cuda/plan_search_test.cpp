// Tests the search for the fastest plan with fake plans and a fake clock.
#include "src/backend/cuda/plans/plan_search.h"

#include <gtest/gtest.h>

#include <vector>

#include "src/backend/cuda/runtime/cuda.h"

namespace carole::cuda {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

struct FakePlan {
  PlanTrial trial;
  milliseconds takes{1};  // how long it takes to try the plan
};
const FakePlan kFails{}, kLacksMemory{{.lacks_memory = true}};
FakePlan Runs(float time, milliseconds takes = milliseconds(1)) {
  return {{.milliseconds = time}, takes};
}

struct Result {
  PlanSearch search;
  size_t tried = 0;
};
Result Search(const std::vector<FakePlan>& plans) {
  Result result;
  Clock::time_point now{};
  result.search = FindFastest(
      static_cast<int64_t>(plans.size()),
      [&](int64_t plan) {
        EXPECT_EQ(static_cast<size_t>(plan), result.tried++);
        now += plans[static_cast<size_t>(plan)].takes;
        return plans[static_cast<size_t>(plan)].trial;
      },
      [&] { return now; });
  return result;
}

TEST(PlanSearch, TakesTheFastestOfTheFirstThatRun) {
  std::vector<FakePlan> plans(kMaxPlans, Runs(2));
  plans[5] = Runs(1);
  plans.push_back(Runs(0.5F));  // faster, but beyond the limit of plans
  const Result result = Search(plans);
  EXPECT_EQ(result.search.fastest, 5);
  EXPECT_TRUE(result.search.is_conclusive);
  EXPECT_EQ(result.tried, static_cast<size_t>(kMaxPlans));
}

TEST(PlanSearch, DoesNotCountPlansThatDoNotRun) {
  std::vector<FakePlan> plans(2 * kMaxPlans, kFails);
  plans.push_back(Runs(2));
  plans.push_back(Runs(1));
  const Result result = Search(plans);
  EXPECT_EQ(result.search.fastest, 2 * kMaxPlans + 1);
  EXPECT_TRUE(result.search.is_conclusive) << "all plans were tried";
}

TEST(PlanSearch, DoesNotCountTheTimeOfTheFirstPlanThatRuns) {
  std::vector<FakePlan> plans(kMaxPlans, Runs(2));
  plans[0].takes = milliseconds(60'000);
  EXPECT_EQ(Search(plans).tried, plans.size());
  plans.insert(plans.begin(), {{}, milliseconds(60'000)});
  EXPECT_EQ(Search(plans).tried, plans.size()) << "a slow plan that fails comes first";
}

TEST(PlanSearch, EndsInTimeOnceItHasTimedEnoughPlans) {
  std::vector<FakePlan> plans(kMaxPlans, Runs(2, kTimeAfterMinPlans / 8));
  EXPECT_EQ(Search(plans).tried, 10u);  // the first, eight more, and one that exceeds the limit
  plans.assign(kMaxPlans, Runs(2, kTimeAfterMinPlans));
  plans[3] = Runs(1, kTimeAfterMinPlans);
  const Result result = Search(plans);
  EXPECT_EQ(result.tried, static_cast<size_t>(kMinPlans));
  EXPECT_EQ(result.search.fastest, 3);
  EXPECT_TRUE(result.search.is_conclusive);
}

// Plans that are compiled when they are built take long. Another search would try as few of them.
TEST(PlanSearch, IsConclusiveWithFewPlansIfTheyTakeLong) {
  std::vector<FakePlan> plans(kMaxPlans, Runs(2, kTimeForMinPlans + milliseconds(1)));
  plans[1].trial.milliseconds = 1;
  const Result result = Search(plans);
  EXPECT_EQ(result.tried, 2u);
  EXPECT_EQ(result.search.fastest, 1);
  EXPECT_TRUE(result.search.is_conclusive);
}

TEST(PlanSearch, DistinguishesPlansThatLackMemoryFromPlansThatFail) {
  PlanSearch search = Search({kFails, kLacksMemory, kLacksMemory, kFails}).search;
  EXPECT_EQ(search.fastest, -1);
  EXPECT_EQ(search.untried, 1);
  EXPECT_FALSE(search.is_conclusive);
  search = Search({kLacksMemory, Runs(2)}).search;
  EXPECT_EQ(search.fastest, 1);
  EXPECT_FALSE(search.is_conclusive) << "with more memory another plan may be faster";
  search = Search({kFails, kFails}).search;
  EXPECT_EQ(search.fastest, -1);
  EXPECT_EQ(search.untried, -1);
  EXPECT_FALSE(search.is_conclusive);
}

TEST(Devices, HaveUniqueIds) { EXPECT_NE(Device().id, Device().id); }

}  // namespace
}  // namespace carole::cuda
