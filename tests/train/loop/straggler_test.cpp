// Tests that the straggler and the reason are found, and when they are logged. Times are given.
#include "src/train/loop/straggler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

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
  EXPECT_EQ(found.cause, StragglerCause::kInput);
  EXPECT_NEAR(found.delay_ms, 20, 1e-9);
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

TEST(Straggler, ToleratesAMillisecond) {
  std::vector<RankTimes> times(2, {.step = 1.6, .input = 0.1, .compute = 1});
  times[0].waited = 0.9;
  EXPECT_EQ(FindStraggler(times).rank, -1);
  times[0].waited = 1.1;
  EXPECT_EQ(FindStraggler(times).rank, 1);
}

class StragglerLogTest : public ::testing::Test {
 protected:
  // Adds 50 steps of 0.1 s each, after which `now_` has advanced by as much.
  std::string Add(const Straggler& found, double seconds = 5) {
    now_ += std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
    return log_.Add(found, "rank 1 (h)", 50, seconds, now_);
  }

  const Straggler input_{
      .rank = 1, .cause = StragglerCause::kInput, .delay_ms = 20, .why = "its input"};
  const Straggler link_{
      .rank = 1, .cause = StragglerCause::kLink, .delay_ms = 20, .why = "its link"};
  StragglerLog log_;
  StragglerLog::Clock::time_point now_;
};

TEST_F(StragglerLogTest, LogsACauseOnceWhenItHasLasted) {
  EXPECT_EQ(Add(input_), "");
  EXPECT_EQ(Add(input_), "rank 1 (h) slows down the other ranks: its input");
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Add(input_), "");
  EXPECT_EQ(Add(link_), "");
  EXPECT_EQ(Add(link_), "rank 1 (h) slows down the other ranks: its link");
}

TEST_F(StragglerLogTest, IgnoresWhatDoesNotLast) {
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Add(i % 2 == 0 ? input_ : link_), "");
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Add(i % 2 == 0 ? input_ : Straggler()), "");
  EXPECT_EQ(Add({}), "");
  for (int i = 0; i < 60; ++i) EXPECT_EQ(Add(input_, 0.16), "") << "less than 10 s";
  EXPECT_EQ(log_.Summary(), "");
}

TEST_F(StragglerLogTest, SummarizesEveryFiveMinutes) {
  Add(input_);
  Add(input_);
  int num_lines = 0;
  for (int i = 0; i < 120; ++i) num_lines += Add(input_).empty() ? 0 : 1;
  EXPECT_EQ(num_lines, 2) << "in 10 minutes";
  EXPECT_EQ(log_.Summary(),
            "in 610 s of steps, rank 1 (h) has delayed the other ranks by 122.0 s (input)");
}

// Has the waits that a test sets.
class FakeDiagnostics final : public collectives::Diagnostics {
 public:
  int rank() const override { return 0; }
  void SetPhase(collectives::RankPhase /*phase*/, int64_t /*step*/) override {}
  void SetObserver(
      std::function<void(const collectives::CollectiveRecord&)> /*observer*/) override {}
  double ClockOffset() override { return 0; }
  collectives::WaitStats TakeWaitStats() override { return std::exchange(stats, {}); }

  collectives::WaitStats stats;
};

// Runs 100 steps of 0.2 s on two ranks and returns the log. Rank 0 waits for rank 1, in each step
// or once between two steps.
std::string LogOf(double seconds_in_steps, double seconds_between_steps) {
  ::testing::internal::CaptureStderr();
  carole::testing::RunRanks(2, [&](collectives::FullCommunicator& c) {
    FakeDiagnostics diagnostics;
    StragglerDetector watch(c, diagnostics);
    const auto wait = [&](double seconds) {
      if (c.rank() == 0) diagnostics.stats.waited_seconds += seconds;
    };
    for (int step = 0; step < 100; ++step) {
      wait(seconds_in_steps);
      if (step == 20) {
        const StragglerDetector::Pause pause(watch);
        wait(seconds_between_steps);
      }
      watch.AddStep({.step = 200, .input = 1, .compute = 5}, step);
    }
  });
  return ::testing::internal::GetCapturedStderr();
}

TEST(StragglerDetector, LogsTheRankThatSlowsDownSteps) {
  EXPECT_THAT(LogOf(0.06, 0),
              HasSubstr("step 99: rank 1 (thread host 0) slows down the other ranks: it joins the "
                        "reductions 60.0 ms late"));
}

TEST(StragglerDetector, IgnoresWaitsBetweenSteps) {
  EXPECT_THAT(LogOf(0, 4), ::testing::Not(HasSubstr("slows down")));
}

}  // namespace
}  // namespace carole::train
