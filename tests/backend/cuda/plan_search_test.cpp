// The search for the fastest plan, among plans and by a clock that are not real.
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
  milliseconds takes{1};  // to be tried
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
  std::vector<FakePlan> plans(kMostPlans, Runs(2));
  plans[5] = Runs(1);
  plans.push_back(Runs(0.5F));  // one too many
  const Result result = Search(plans);
  EXPECT_EQ(result.search.fastest, 5);
  EXPECT_TRUE(result.search.is_enough);
  EXPECT_EQ(result.tried, static_cast<size_t>(kMostPlans));
}

TEST(PlanSearch, DoesNotCountPlansThatDoNotRun) {
  std::vector<FakePlan> plans(2 * kMostPlans, kFails);
  plans.push_back(Runs(2));
  plans.push_back(Runs(1));
  const Result result = Search(plans);
  EXPECT_EQ(result.search.fastest, 2 * kMostPlans + 1);
  EXPECT_TRUE(result.search.is_enough) << "there are no others";
}

TEST(PlanSearch, ForgivesTheFirstPlanItsTime) {
  std::vector<FakePlan> plans(kMostPlans, Runs(2));
  plans[0].takes = milliseconds(60'000);
  EXPECT_EQ(Search(plans).tried, plans.size());
  plans.insert(plans.begin(), {{}, milliseconds(60'000)});
  EXPECT_EQ(Search(plans).tried, plans.size()) << "one that fails";
}

TEST(PlanSearch, EndsInTimeOnceItHasEnough) {
  std::vector<FakePlan> plans(kMostPlans, Runs(2, kTimeWithEnough / 8));
  EXPECT_EQ(Search(plans).tried, 10u);  // the first, eight, and the one that takes it past the end
  plans.assign(kMostPlans, Runs(2, kTimeWithEnough));
  plans[3] = Runs(1, kTimeWithEnough);
  const Result result = Search(plans);
  EXPECT_EQ(result.tried, static_cast<size_t>(kEnoughPlans));
  EXPECT_EQ(result.search.fastest, 3);
  EXPECT_TRUE(result.search.is_enough);
}

// Plans that are compiled when they are built: the next search would see as few of them.
TEST(PlanSearch, IsContentWithWhatRanInTime) {
  std::vector<FakePlan> plans(kMostPlans, Runs(2, kTimeForEnough + milliseconds(1)));
  plans[1].trial.milliseconds = 1;
  const Result result = Search(plans);
  EXPECT_EQ(result.tried, 2u);
  EXPECT_EQ(result.search.fastest, 1);
  EXPECT_TRUE(result.search.is_enough);
}

TEST(PlanSearch, TellsPlansThatLackMemoryFromThoseThatDoNotRun) {
  PlanSearch search = Search({kFails, kLacksMemory, kLacksMemory, kFails}).search;
  EXPECT_EQ(search.fastest, -1);
  EXPECT_EQ(search.untried, 1);
  EXPECT_FALSE(search.is_enough);
  search = Search({kLacksMemory, Runs(2)}).search;
  EXPECT_EQ(search.fastest, 1);
  EXPECT_FALSE(search.is_enough) << "with more memory another may be faster";
  search = Search({kFails, kFails}).search;
  EXPECT_EQ(search.fastest, -1);
  EXPECT_EQ(search.untried, -1);
  EXPECT_FALSE(search.is_enough);
}

TEST(Devices, HaveIdsOfTheirOwn) { EXPECT_NE(Device().id, Device().id); }

}  // namespace
}  // namespace carole::cuda
