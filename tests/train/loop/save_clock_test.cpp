// Tests of the times that saves take, and of what follows from them: the interval between saves and
// the margins of time limits.
#include "src/train/loop/save_clock.h"

#include <gmock/gmock.h>

#include <chrono>
#include <cmath>

#include "src/train/loop/save_schedule.h"
#include "src/train/loop/time_limit.h"

namespace carole::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(SaveClockTest, GuessesUntilItHasMeasured) {
  SaveClock clock;
  clock.SetStateBytes(200'000'000);
  EXPECT_FALSE(clock.costs().is_measured);
  EXPECT_DOUBLE_EQ(clock.costs().pause, 0.2);
  EXPECT_DOUBLE_EQ(clock.costs().durable, 2.2);
  clock.AddPause(0.1);
  EXPECT_FALSE(clock.costs().is_measured);
  clock.AddDurable(7);
  EXPECT_TRUE(clock.costs().is_measured);
  EXPECT_DOUBLE_EQ(clock.costs().pause, 0.1);
  EXPECT_DOUBLE_EQ(clock.costs().durable, 7);
}

TEST(SaveClockTest, TakesTheMedianPauseAndTheLongestSaveOfTheLastOnes) {
  SaveClock clock;
  for (const double seconds : {9.0, 1.0, 2.0}) {
    clock.AddPause(seconds);
    clock.AddDurable(seconds);
  }
  EXPECT_DOUBLE_EQ(clock.costs().pause, 2);
  EXPECT_DOUBLE_EQ(clock.costs().durable, 9);
  for (int i = 0; i < 9; ++i) clock.AddDurable(3);
  EXPECT_DOUBLE_EQ(clock.costs().durable, 3);
  clock.AddStep(10);
  EXPECT_DOUBLE_EQ(clock.SecondsToStop(), 2 * (10 + 3));
  for (int i = 0; i < 64; ++i) clock.AddStep(0.5);
  EXPECT_DOUBLE_EQ(clock.SecondsToStop(), 2 * (0.5 + 3));
}

// Other ranks write nothing, but they have their own pauses.
TEST(SaveClockTest, AdoptsTheCostsOfRank0) {
  SaveClock clock;
  clock.AddPause(1);
  clock.Adopt({.pause = 4, .durable = 5, .is_measured = true});
  EXPECT_DOUBLE_EQ(clock.costs().pause, 4);
  EXPECT_DOUBLE_EQ(clock.costs().durable, 5);
  EXPECT_TRUE(clock.costs().is_measured);
}

// sqrt(2 * 2 * 10000) = 200 and sqrt(2 / 20000) = 0.01, so the interval is
// 200 * (1 + 0.01 / 3 + 0.0001 / 9) - 2.
TEST(SaveIntervalTest, IsDalys) {
  EXPECT_NEAR(OptimalSaveInterval(2, 10000), 198.668889, 1e-6);
  EXPECT_DOUBLE_EQ(OptimalSaveInterval(200, 100), 100);
  EXPECT_DOUBLE_EQ(OptimalSaveInterval(201, 100), 100);
}

// The test finds the best interval by trying. Failures are at random, every M seconds on average.
// Then the expected time for each second of work is (exp((t + save) / M) - 1) * M / t. Source:
// Daly, equation 20, without the time to restart.
TEST(SaveIntervalTest, IsCloseToTheBestOne) {
  constexpr double kSave = 20, kFailure = 5000;
  const auto time = [](double t) { return std::expm1((t + kSave) / kFailure) * kFailure / t; };
  double best = 1;
  for (double t = 1; t < kFailure; ++t) best = time(t) < time(best) ? t : best;
  EXPECT_NEAR(OptimalSaveInterval(kSave, kFailure), best, 1);
}

TEST(SaveIntervalTest, IsBounded) {
  constexpr double kMonth = 30 * 86400.0;
  EXPECT_DOUBLE_EQ(BoundedSaveInterval(0, kMonth), 10);
  EXPECT_DOUBLE_EQ(BoundedSaveInterval(1e-6, kMonth), 10);
  EXPECT_DOUBLE_EQ(BoundedSaveInterval(30, kMonth), 3600);
  EXPECT_DOUBLE_EQ(BoundedSaveInterval(400, kMonth), 4000);  // ten times a save
  EXPECT_DOUBLE_EQ(BoundedSaveInterval(2, 10000), OptimalSaveInterval(2, 10000));
}

// One moment, in seconds after an arbitrary start at which the wall clock says 1000000.
Moment At(double seconds) {
  using std::chrono::duration;
  static const auto start = std::chrono::steady_clock::now();
  return {
      start + std::chrono::duration_cast<std::chrono::nanoseconds>(duration<double>(seconds)),
      std::chrono::system_clock::time_point(
          std::chrono::duration_cast<std::chrono::nanoseconds>(duration<double>(1e6 + seconds)))};
}

TEST(TimeLimitTest, TheMarginFollowsFromMeasuredSaves) {
  SaveClock clock;
  const TimeLimit limit({.job_end = 1'000'300, .margin_seconds = 60, .clock = &clock}, At(0));
  EXPECT_NEAR(limit.SecondsLeft(At(0)), 240, 1e-6);  // nothing is measured yet
  clock.SetStateBytes(10'000'000'000);               // a guess of 110 s: twice that and 5 s
  EXPECT_NEAR(limit.SecondsLeft(At(0)), 300 - 225, 1e-6);
  clock.AddStep(1.5);
  clock.AddPause(0.1);
  clock.AddDurable(2);  // 2 * (1.5 + 2) + 5 = 12
  EXPECT_NEAR(limit.SecondsLeft(At(0)), 288, 1e-6);
  EXPECT_EQ(limit.Reason(At(287)), "");
  EXPECT_EQ(limit.Reason(At(289)), "the job ends in 11 s");
  clock.AddDurable(100);  // a slow disk
  EXPECT_NEAR(limit.SecondsLeft(At(0)), 92, 1e-6);
  const TimeLimit fixed(
      {.job_end = 1'000'300, .margin_seconds = 20, .is_margin_fixed = true, .clock = &clock},
      At(0));
  EXPECT_NEAR(fixed.SecondsLeft(At(0)), 280, 1e-6);
}

TEST(TimeLimitTest, ARunSavesWithinItsOwnLimit) {
  SaveClock clock;
  const TimeLimit limit({.max_seconds = 100, .clock = &clock}, At(0));
  EXPECT_NEAR(limit.SecondsLeft(At(0)), 100, 1e-6);
  clock.AddStep(1);
  clock.AddDurable(4);
  EXPECT_NEAR(limit.SecondsLeft(At(0)), 90, 1e-6);
  EXPECT_EQ(limit.Reason(At(89)), "");
  EXPECT_EQ(limit.Reason(At(91)),
            "\x1f$(max_time): 9.0 of 100 s are left, to end a step and to save");
  EXPECT_EQ(limit.Reason(At(101)), "\x1f$(max_time): 100 s are over");
  clock.AddDurable(1000);
  EXPECT_NEAR(limit.SecondsLeft(At(0)), 50, 1e-6);  // half of the time is for training
}

TEST(SaveScheduleTest, KnowsWhatALossWouldCost) {
  SaveClock clock;
  SaveSchedule saves({}, 1, clock);
  saves.Begin(100);
  EXPECT_EQ(saves.Unsaved(130).steps, 30);
  saves.BeginSave();
  saves.EndSave(130);
  EXPECT_EQ(saves.Unsaved(131).steps, 31);  // the file is not complete
  EXPECT_FALSE(clock.costs().is_measured);
  saves.SetWritten(io::WrittenCheckpoint{100, std::chrono::steady_clock::now()});
  EXPECT_EQ(saves.Unsaved(131).steps, 31);
  saves.SetWritten(io::WrittenCheckpoint{130, std::chrono::steady_clock::now()});
  EXPECT_EQ(saves.Unsaved(131).steps, 1);
  EXPECT_TRUE(clock.costs().is_measured);
}

std::string LogOfSave(const SaveScheduleOptions& options, int num_hosts, double pause) {
  SaveClock clock;
  SaveSchedule saves(options, num_hosts, clock);
  saves.Begin(0);
  saves.BeginSave();
  saves.EndSave(7);
  for (int i = 0; i < 3; ++i) clock.AddPause(pause);
  clock.AddDurable(3 * pause);
  ::testing::internal::CaptureStderr();
  saves.SetWritten(io::WrittenCheckpoint{7, std::chrono::steady_clock::now()});
  saves.LogSave();
  saves.ChooseInterval();
  saves.ChooseInterval();  // says nothing new
  return ::testing::internal::GetCapturedStderr();
}

TEST(SaveScheduleTest, LogsCostAndInterval) {
  const SaveScheduleOptions automatic{.is_auto = true, .mean_time_between_failures = 40000};
  const std::string log = LogOfSave(automatic, 4, 2);
  EXPECT_THAT(log, AllOf(HasSubstr("step 7: training stopped for 2.00 s to save; before, a loss "
                                   "would have cost 7 steps, 0.0 s"),
                         HasSubstr("\x1f$(save_interval_secs)=auto: 199 s between saves: a save "
                                   "stops training for 2.00 s, and one of 4 hosts is expected to "
                                   "fail every 2.8 h")));
  EXPECT_EQ(log.find("between saves"), log.rfind("between saves"));
  EXPECT_THAT(LogOfSave({}, 4, 2), Not(HasSubstr("between saves")));
}

TEST(SaveScheduleTest, WarnsOfAShortGracePeriod) {
  EXPECT_THAT(LogOfSave({.grace = {10, "KillWait"}}, 1, 2),
              HasSubstr("KillWait: too short to save after a signal: got 10 s, want 12 s"));
  EXPECT_THAT(LogOfSave({.grace = {13, "KillWait"}}, 1, 2), Not(HasSubstr("too short")));
  EXPECT_THAT(LogOfSave({}, 1, 2), Not(HasSubstr("too short")));
}

}  // namespace
}  // namespace carole::train
