// Who is slow, and why.
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

// Four ranks in step: 100 ms a step, of which each waits 3 ms.
std::vector<RankTimes> Alike() {
  return std::vector<RankTimes>(4,
                                {.step = 100, .input = 10, .compute = 80, .waited = 3, .link = 5});
}

TEST(Straggler, NobodyAmongRanksAlike) {
  EXPECT_EQ(FindStraggler(Alike()).rank, -1);
  EXPECT_EQ(FindStraggler(std::vector<RankTimes>(2)).rank, -1);
}

// The others wait 20 ms for rank 2.
std::vector<RankTimes> OneIsLate() {
  std::vector<RankTimes> times = Alike();
  for (size_t r : {0, 1, 3}) times[r].waited += 20;
  return times;
}

TEST(Straggler, NamesItsInput) {
  std::vector<RankTimes> times = OneIsLate();
  times[2].input = 30;
  const Straggler found = FindStraggler(times);
  EXPECT_EQ(found.rank, 2);
  EXPECT_EQ(found.why,
            "comes 20.0 ms late to a step's sums; input takes 30.0 ms a step there, 10.0 ms "
            "elsewhere");
}

TEST(Straggler, NamesItsComputing) {
  std::vector<RankTimes> times = OneIsLate();
  times[2].compute = 100;
  const Straggler found = FindStraggler(times);
  EXPECT_EQ(found.rank, 2);
  EXPECT_THAT(found.why, HasSubstr("computing takes 100.0 ms a step there, 80.0 ms elsewhere"));
}

TEST(Straggler, SaysWhenItsOwnWorkTakesNoLonger) {
  const Straggler found = FindStraggler(OneIsLate());
  EXPECT_EQ(found.rank, 2);
  EXPECT_THAT(found.why, HasSubstr("its own work takes no longer"));
}

TEST(Straggler, NamesTheNetworkThatLeadsToARank) {
  std::vector<RankTimes> times = Alike();
  times[1].link = 45;
  const Straggler found = FindStraggler(times);
  EXPECT_EQ(found.rank, 1);
  EXPECT_THAT(found.why, HasSubstr("the network that leads to it"));
}

TEST(Straggler, ToleratesATwentiethOfAStep) {
  std::vector<RankTimes> times = Alike();
  for (size_t r : {0, 1, 2}) times[r].waited += 4.9;
  EXPECT_EQ(FindStraggler(times).rank, -1);
  for (size_t r : {0, 1, 2}) times[r].waited += 0.2;
  EXPECT_EQ(FindStraggler(times).rank, 3);
}

// What rank 0 logs of 50 steps, in which rank 1 comes late to the sums or to what is no step.
std::string LogOf(bool late_to_steps, bool late_to_others) {
  ::testing::internal::CaptureStderr();
  carole::testing::RunRanks(2, [&](collectives::Communicator& c) {
    c.Barrier({.what = "start"});
    StragglerWatch watch(c);
    float value[1] = {1};
    const auto sum = [&](bool is_late, double ms) {
      if (is_late && c.rank() == 1)
        std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms));
      c.AllReduce(std::span(value), {.what = "gradients"});
    };
    for (int step = 0; step < 50; ++step) {
      sum(late_to_steps, 60);
      if (step == 20) {
        const StragglerWatch::Pause pause(watch);
        sum(late_to_others, 4000);
      }
      // A twentieth of so long steps is more than a busy machine takes from one of the ranks.
      watch.AddStep({.step = late_to_steps ? 200.0 : 1000.0, .input = 1, .compute = 5}, step);
    }
  });
  return ::testing::internal::GetCapturedStderr();
}

TEST(StragglerWatch, LogsWhoHoldsUpSteps) {
  EXPECT_THAT(LogOf(true, false), HasSubstr("rank 1 (thread host 0) holds up the others"));
}

TEST(StragglerWatch, WhatIsNoStepDoesNotCount) {
  EXPECT_THAT(LogOf(false, true), ::testing::Not(HasSubstr("holds up")));
}

}  // namespace
}  // namespace carole::train
