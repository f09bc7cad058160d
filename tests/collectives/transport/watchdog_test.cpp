// If ranks do not come or leave, the other ranks get an error that names them, in time.
#include "collectives/transport/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "src/core/error.h"
#include "tests/support/collective_cases.h"
#include "tests/support/run_ranks.h"

namespace carole::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Ranks per host: all on one host (0), a host for each rank, and hosts of two.
const std::vector<int> kPerHost = {0, 1, 2};

CommunicatorOptions ShortDeadline(int per_host) {
  return {.warn_seconds = 0.5, .deadline_seconds = 4, .ranks_per_host = per_host};
}

// Far above what a loaded machine takes, and far below the default deadline of 60 s.
constexpr auto kInTime = std::chrono::seconds(30);

TEST(Deadline, NamesTheRankThatDoesNotCome) {
  for (int per_host : kPerHost) {
    for (const auto algorithm :
         {collectives::AllReduceAlgorithm::kRing, collectives::AllReduceAlgorithm::kHierarchical}) {
      const auto start = std::chrono::steady_clock::now();
      CommunicatorOptions options = ShortDeadline(per_host);
      options.all_reduce = algorithm;
      const auto errors = ErrorsOfRanks(
          3,
          [](FullCommunicator& c) {
            std::vector<float> data(1000);
            c.AllReduce(data, {.what = "fine"});
            if (c.rank() != 2) c.AllReduce(data, {.what = "gradients", .step = 3, .bucket = 1});
          },
          options);
      for (int r : {0, 1}) {
        EXPECT_THAT(errors[r], AllOf(HasSubstr("deadline"), HasSubstr("rank 2 (thread host"),
                                     HasSubstr("gradients, step 3, bucket 1")))
            << per_host << " ranks on a host, " << Name(algorithm);
      }
      EXPECT_EQ(errors[2], "");
      EXPECT_LT(std::chrono::steady_clock::now() - start, kInTime);
    }
  }
}

TEST(Deadline, SaysWhatTheMissingRankWasDoing) {
  for (int per_host : kPerHost) {
    const auto errors = ErrorsOfRanks(
        3,
        [](FullCommunicator& c) {
          c.SetPhase(collectives::RankPhase::kReduction, 6);
          c.Barrier({.what = "fine"});
          if (c.rank() == 2) return c.SetPhase(collectives::RankPhase::kForward, 7);
          c.Barrier({.what = "stuck"});
        },
        ShortDeadline(per_host));
    // For a rank of another host, only its activity at the last operation is known.
    EXPECT_THAT(errors[0],
                HasSubstr(per_host == 0 ? "rank 2 (thread host 0) in the forward phase of step 7"
                                        : "last seen in the reduction phase of step 6"));
  }
}

TEST(Deadline, PendingThrowsInWait) {
  const auto errors = ErrorsOfRanks(
      2,
      [](FullCommunicator& c) {
        if (c.rank() == 1) return;
        std::vector<float> data(10);
        c.AllReduceAsync(data, {})->Wait();
      },
      ShortDeadline(0));
  EXPECT_THAT(errors[0], HasSubstr("rank 1"));
}

TEST(Deadline, ARankThatHasLeftIsNoticedAtOnce) {
  auto communicators = collectives::MakeLocalCommunicators(2);
  communicators[1].reset();
  const auto start = std::chrono::steady_clock::now();
  std::string text;
  try {
    communicators[0]->Barrier({.what = "end"});
  } catch (const CommError& error) {
    text = error.what();
  }
  EXPECT_THAT(text,
              AllOf(HasSubstr("barrier, tag end"), HasSubstr("rank 1"), HasSubstr("is gone")));
  EXPECT_LT(std::chrono::steady_clock::now() - start, kInTime);
}

// As after scontrol suspend.
TEST(Watchdog, TimeWhileSuspendedDoesNotCount) {
  const std::vector<std::string> names = {"rank 0 (a)", "rank 1 (b)"};
  collectives::Watchdog watchdog({.warn_seconds = 1, .deadline_seconds = 4}, names, {});
  const std::vector<int> missing = {1};
  watchdog.Begin({});
  watchdog.Check(missing);
  std::this_thread::sleep_for(std::chrono::seconds(5));
  EXPECT_NO_THROW(watchdog.Check(missing));
  std::this_thread::sleep_for(std::chrono::milliseconds(2200));
  EXPECT_THROW(watchdog.Check(missing), CommError) << "rare checks still count as waiting";
}

// An all-reduce that takes longer than the deadline because its network is slow is no stall.
TEST(Watchdog, ProgressRestartsTheDeadline) {
  const std::vector<std::string> names = {"rank 0 (a)", "rank 1 (b)"};
  collectives::Watchdog watchdog({.warn_seconds = 1, .deadline_seconds = 3}, names, {});
  const std::vector<int> missing = {1};
  const auto wait = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    watchdog.Check(missing);
  };
  watchdog.Begin({});
  watchdog.SetAllArrived();
  for (int i = 0; i < 8; ++i) {
    EXPECT_NO_THROW(wait());
    watchdog.EndWait();
  }
  EXPECT_THROW(for (int i = 0; i < 8; ++i) wait(), CommError);
  watchdog.Begin({});  // before all ranks have arrived, progress does not count
  EXPECT_THROW(
      for (int i = 0; i < 8; ++i) {
        wait();
        watchdog.EndWait();
      },
      CommError);
}

}  // namespace
}  // namespace carole::testing
