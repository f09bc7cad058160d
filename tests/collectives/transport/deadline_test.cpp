// Ranks that do not come or leave: the others get an error that names them, in time.
#include "collectives/transport/deadline.h"

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

// One host, a host for each rank, and hosts of two.
const std::vector<int> kPerHost = {0, 1, 2};

CommunicatorOptions Impatient(int per_host) {
  return {.warn_seconds = 0.5, .deadline_seconds = 4, .ranks_per_host = per_host};
}

// Far above what a loaded machine takes, far below the deadline that nobody has asked for, 60 s.
constexpr auto kInTime = std::chrono::seconds(30);

TEST(Deadline, NamesTheRankThatDoesNotCome) {
  for (int per_host : kPerHost) {
    for (const char* algorithm : {"ring", "hierarchical"}) {
      const auto start = std::chrono::steady_clock::now();
      CommunicatorOptions options = Impatient(per_host);
      options.all_reduce = algorithm;
      const auto errors = ErrorsOfRanks(
          3,
          [](Communicator& c) {
            std::vector<float> data(1000);
            c.AllReduce(data, {.what = "fine"});
            if (c.rank() != 2) c.AllReduce(data, {.what = "gradients", .step = 3, .bucket = 1});
          },
          options);
      for (int r : {0, 1}) {
        EXPECT_THAT(errors[r], AllOf(HasSubstr("deadline"), HasSubstr("rank 2 (thread host"),
                                     HasSubstr("gradients, step 3, bucket 1")))
            << per_host << " ranks on a host, " << algorithm;
      }
      EXPECT_EQ(errors[2], "");
      EXPECT_LT(std::chrono::steady_clock::now() - start, kInTime);
    }
  }
}

TEST(Deadline, SaysWhatTheMissingRankDoes) {
  for (int per_host : kPerHost) {
    const auto errors = ErrorsOfRanks(
        3,
        [](Communicator& c) {
          c.SetPhase(collectives::RankPhase::kSums, 6);
          c.Barrier({.what = "fine"});
          if (c.rank() == 2) return c.SetPhase(collectives::RankPhase::kForward, 7);
          c.Barrier({.what = "stuck"});
        },
        Impatient(per_host));
    // Of another host it is known what was being done at the last operation.
    EXPECT_THAT(errors[0], HasSubstr(per_host == 0 ? "rank 2 (thread host 0) in forward of step 7"
                                                   : "last seen in sums of step 6"));
  }
}

TEST(Deadline, PendingThrowsToo) {
  const auto errors = ErrorsOfRanks(
      2,
      [](Communicator& c) {
        if (c.rank() == 1) return;
        std::vector<float> data(10);
        c.AllReduceAsync(data, {})->Wait();
      },
      Impatient(0));
  EXPECT_THAT(errors[0], HasSubstr("rank 1"));
}

TEST(Deadline, ARankThatLeftIsNoticedAtOnce) {
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
TEST(Watch, TimeInWhichItWasSuspendedIsNoWaiting) {
  const std::vector<std::string> names = {"rank 0 (a)", "rank 1 (b)"};
  collectives::Watch watch({.warn_seconds = 1, .deadline_seconds = 4}, names, {});
  const std::vector<int> missing = {1};
  watch.Begin({});
  watch.Check(missing);
  std::this_thread::sleep_for(std::chrono::seconds(5));
  EXPECT_NO_THROW(watch.Check(missing));
  std::this_thread::sleep_for(std::chrono::milliseconds(2200));
  EXPECT_THROW(watch.Check(missing), CommError) << "it looks so seldom, but waits";
}

// A sum that takes longer than the deadline, because its network is slow, is no stall.
TEST(Watch, WaitingBeginsAnewWhenDataHaveCome) {
  const std::vector<std::string> names = {"rank 0 (a)", "rank 1 (b)"};
  collectives::Watch watch({.warn_seconds = 1, .deadline_seconds = 3}, names, {});
  const std::vector<int> missing = {1};
  const auto wait = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    watch.Check(missing);
  };
  watch.Begin({});
  watch.SetAgreed();
  for (int i = 0; i < 8; ++i) {
    EXPECT_NO_THROW(wait());
    watch.EndCheck();
  }
  EXPECT_THROW(for (int i = 0; i < 8; ++i) wait(), CommError);
  watch.Begin({});  // not agreed: ranks that come one by one must all be there in time
  EXPECT_THROW(
      for (int i = 0; i < 8; ++i) {
        wait();
        watch.EndCheck();
      },
      CommError);
}

}  // namespace
}  // namespace carole::testing
