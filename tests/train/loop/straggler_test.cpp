// Tests that the straggler and the reason are found, from given times and from real waits.
#include "src/train/loop/straggler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "tests/support/run_ranks.h"

namespace carole::train {
namespace {

using ::testing::HasSubstr;

// Times of four equal ranks: 100 ms per step, of which each rank waits 3 ms.
std::vector<RankTimes> EqualRanks() {
  return std::vector<RankTimes>(4,
                                {.step = 100, .input = 10, .compute = 80, .waited = 3, .link = 5});
}

TEST(Straggler, EqualRanksHaveNone) {
  EXPECT_EQ(FindStraggler(EqualRanks()).rank, -1);
  EXPECT_EQ(FindStraggler(std::vector<RankTimes>(2)).rank, -1);
}

// Times of four ranks of which three wait 20 ms for rank 2.
std::vector<RankTimes> OneIsLate() {
  std::vector<RankTimes> times = EqualRanks();
  for (size_t r : {0, 1, 3}) times[r].waited += 20;
  return times;
}

TEST(Straggler, NamesSlowInput) {
  std::vector<RankTimes> times = OneIsLate();
  times[2].input = 30;
  const Straggler found = FindStraggler(times);
  EXPECT_EQ(found.rank, 2);
  EXPECT_EQ(found.why,
            "it joins the reductions 20.0 ms late in each step; its input takes 30.0 ms per step, "
            "10.0 ms on the median rank");
}

TEST(Straggler, NamesSlowCompute) {
  std::vector<RankTimes> times = OneIsLate();
  times[2].compute = 100;
  const Straggler found = FindStraggler(times);
  EXPECT_EQ(found.rank, 2);
  EXPECT_THAT(found.why,
              HasSubstr("its compute takes 100.0 ms per step, 80.0 ms on the median rank"));
}

TEST(Straggler, ReportsALateRankWhoseWorkTakesNoLonger) {
  const Straggler found = FindStraggler(OneIsLate());
  EXPECT_EQ(found.rank, 2);
  EXPECT_THAT(found.why, HasSubstr("its input and compute take no longer"));
}

TEST(Straggler, NamesASlowNetworkLink) {
  std::vector<RankTimes> times = EqualRanks();
  times[1].link = 45;
  const Straggler found = FindStraggler(times);
  EXPECT_EQ(found.rank, 1);
  EXPECT_THAT(found.why, HasSubstr("its network link: reductions take 45.0 ms per step"));
}

TEST(Straggler, ToleratesFivePercentOfAStep) {
  std::vector<RankTimes> times = EqualRanks();
  for (size_t r : {0, 1, 2}) times[r].waited += 4.9;
  EXPECT_EQ(FindStraggler(times).rank, -1);
  for (size_t r : {0, 1, 2}) times[r].waited += 0.2;
  EXPECT_EQ(FindStraggler(times).rank, 3);
}

// Runs 50 steps on two ranks and returns the log. Rank 1 arrives late to the reductions of the
// steps, or to a reduction that happens between two steps.
std::string LogOf(bool late_to_steps, bool late_between_steps) {
  ::testing::internal::CaptureStderr();
  carole::testing::RunRanks(2, [&](collectives::FullCommunicator& c) {
    c.Barrier({.what = "start"});
    StragglerDetector watch(c, c);
    float value[1] = {1};
    const auto reduce = [&](bool is_late, double ms) {
      if (is_late && c.rank() == 1)
        std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms));
      c.AllReduce(std::span(value), {.what = "gradients"});
    };
    for (int step = 0; step < 50; ++step) {
      reduce(late_to_steps, 60);
      if (step == 20) {
        const StragglerDetector::Pause pause(watch);
        reduce(late_between_steps, 4000);
      }
      // 5 % of such long steps is more than a busy machine takes away from one of the ranks.
      watch.AddStep({.step = late_to_steps ? 200.0 : 1000.0, .input = 1, .compute = 5}, step);
    }
  });
  return ::testing::internal::GetCapturedStderr();
}

TEST(StragglerDetector, LogsTheRankThatSlowsDownSteps) {
  EXPECT_THAT(LogOf(true, false), HasSubstr("rank 1 (thread host 0) slows down the other ranks"));
}

TEST(StragglerDetector, IgnoresWaitsBetweenSteps) {
  EXPECT_THAT(LogOf(false, true), ::testing::Not(HasSubstr("slows down")));
}

}  // namespace
}  // namespace carole::train
