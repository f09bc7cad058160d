// If ranks disagree or give up, the other ranks get an error that names them.
#include "collectives/engine/consistency_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <map>
#include <thread>

#include "collectives/ranks/rank_local_work.h"
#include "collectives/ranks/settings_check.h"
#include "src/core/error.h"
#include "tests/support/collective_cases.h"
#include "tests/support/run_ranks.h"

namespace carole::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

// Ranks per host: all on one host (0), a host for each rank, and hosts of two.
const std::vector<int> kPerHost = {0, 1, 2};

// Rank 2 of four calls something else. All ranks must throw the same error.
void ExpectMismatch(const std::function<void(FullCommunicator&, bool is_odd)>& call,
                    const std::string& odd, const std::string& common) {
  for (int per_host : kPerHost) {
    const auto errors = ErrorsOfRanks(4, [&](FullCommunicator& c) { call(c, c.rank() == 2); },
                                      {.ranks_per_host = per_host});
    EXPECT_THAT(errors, Each(AllOf(HasSubstr("out of step"), HasSubstr("rank 2"), HasSubstr(odd),
                                   HasSubstr("rank 0"), HasSubstr(common))))
        << per_host << " ranks on a host";
    EXPECT_THAT(errors, Each(errors[0]));
  }
}

TEST(ConsistencyCheck, FindsADifferentCount) {
  ExpectMismatch(
      [](FullCommunicator& c, bool is_odd) {
        std::vector<float> data(is_odd ? 99 : 100, 1.0f);
        c.AllReduce(data, {});
      },
      "all_reduce of 99 fp32", "all_reduce of 100 fp32");
}

TEST(ConsistencyCheck, FindsADifferentType) {
  ExpectMismatch(
      [](FullCommunicator& c, bool is_odd) {
        std::vector<float> floats(100);
        std::vector<double> doubles(100);
        is_odd ? c.AllReduce(doubles, {}) : c.AllReduce(floats, {});
      },
      "100 fp64", "100 fp32");
}

TEST(ConsistencyCheck, FindsADifferentTag) {
  ExpectMismatch(
      [](FullCommunicator& c, bool is_odd) {
        std::vector<float> data(100);
        c.AllReduce(data, {.what = "gradients", .step = is_odd ? 8 : 7, .bucket = 5});
      },
      "step 8, bucket 5", "step 7, bucket 5");
}

TEST(ConsistencyCheck, FindsADifferentOrder) {
  ExpectMismatch(
      [](FullCommunicator& c, bool is_odd) {
        std::vector<float> data(100);
        if (is_odd) c.Barrier({.what = "stray"});
        c.AllReduce(data, {.what = "gradients"});
        c.Barrier({.what = "stray"});
      },
      "barrier, tag stray", "all_reduce of 100 fp32, tag gradients");
}

TEST(ConsistencyCheck, FindsADifferentBucketPlan) {
  ExpectMismatch(
      [](FullCommunicator& c, bool is_odd) {
        std::vector<float> gradients(100);
        collectives::Reducer reducer(c, gradients, {{.offset = 0, .count = is_odd ? 50u : 100u}});
      },
      "bucket plan", "plan 0x");
}

TEST(ConsistencyCheck, FindsADifferentAlgorithm) {
  ExpectMismatch(
      [](FullCommunicator& c, bool is_odd) {
        std::vector<float> data(100);
        if (is_odd) c.SetAllReduce(collectives::AllReduceAlgorithm::kRing);
        c.AllReduce(data, {});
      },
      "algorithm ring", "algorithm ");
}

TEST(ConsistencyCheck, FindsADifferentAddressInTheArena) {
  ExpectMismatch(
      [](FullCommunicator& c, bool is_odd) {
        const auto arena = c.AllocateArena(1000);
        c.AllReduce({reinterpret_cast<float*>(arena->data()) + (is_odd ? 1 : 0), 100}, {});
      },
      "arena 0 byte 4", "arena 0 byte 0");
}

TEST(ConsistencyCheck, MakesTheCommunicatorUnusableAfterAnError) {
  const auto errors = ErrorsOfRanks(2, [](Communicator& c) {
    EXPECT_THROW(c.Barrier({.step = c.rank()}), CommError);
    c.Barrier({});
  });
  EXPECT_THAT(errors, Each(HasSubstr("an earlier operation failed")));
}

TEST(Abort, EndsTheWaitsOfAllRanks) {
  for (int per_host : kPerHost) {
    const auto errors = ErrorsOfRanks(3,
                                      [](Communicator& c) {
                                        if (c.rank() == 1) return c.Abort(65);
                                        c.Barrier({});
                                      },
                                      {.ranks_per_host = per_host});
    EXPECT_THAT(errors[0], HasSubstr("the job was aborted"));
    EXPECT_THAT(errors[2], HasSubstr("the job was aborted"));
  }
}

TEST(SettingsCheck, NamesTheDifferentSettingsAndRanks) {
  for (int per_host : kPerHost) {
    const auto errors = ErrorsOfRanks(4,
                                      [](Communicator& c) {
                                        std::map<std::string, std::string> settings = {
                                            {"version", "1"}, {"net", "lenet"}, {"seed", "7"}};
                                        collectives::CheckSettingsMatch(c, settings);
                                        if (c.rank() == 2)
                                          settings = {{"version", "2"}, {"net", "lenet"}};
                                        if (c.rank() == 3) settings["momentum"] = "0.9";
                                        collectives::CheckSettingsMatch(c, settings);
                                      },
                                      {.ranks_per_host = per_host});
    EXPECT_THAT(errors, Each(errors[0]));
    EXPECT_THAT(errors[0],
                AllOf(HasSubstr("ranks differ: seed: rank 2 (thread host"),
                      HasSubstr("has nothing, rank 0 (thread host 0) has 7"),
                      HasSubstr("version: rank 2 (thread host"),
                      HasSubstr("has 2, rank 0 (thread host 0) has 1"), Not(HasSubstr("lenet"))));
  }
}

TEST(RunRankLocal, MayTakeLongerThanTheDeadline) {
  RunRanks(3,
           [](Communicator& c) {
             bool done = false;
             collectives::RunRankLocal(c, "work", [&] {
               if (c.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(8));
               done = true;
             });
             c.Barrier({.what = "after the work"});
             Require(done, "the work is done");
           },
           {.deadline_seconds = 6});
}

TEST(RunRankLocal, ThrowsOnTheRankThatFails) {
  const auto errors = ErrorsOfRanks(3, [](Communicator& c) {
    collectives::RunRankLocal(c, "work", [&] {
      if (c.rank() == 1) throw DiskError("no space");
    });
  });
  EXPECT_THAT(errors, ::testing::ElementsAre("", "no space", ""));
}

TEST(RunRankLocal, ThrowsBeforeTheOthersAreDone) {
  std::promise<void> thrown;
  const auto errors = ErrorsOfRanks(2, [&](Communicator& c) {
    try {
      collectives::RunRankLocal(c, "work", [&] {
        if (c.rank() == 1) throw DiskError("no space");
        const auto status = thrown.get_future().wait_for(std::chrono::seconds(20));
        Require(status == std::future_status::ready, "rank 1 has thrown");
      });
    } catch (const DiskError&) {
      thrown.set_value();
      throw;
    }
  });
  EXPECT_THAT(errors, ::testing::ElementsAre("", "no space"));
}

TEST(RunRankLocal, LogsWhichRankTheOthersWaitFor) {
  using std::chrono::milliseconds;
  ::testing::internal::CaptureStderr();
  RunRanks(3, [](Communicator& c) {
    collectives::RunRankLocal(
        c, "work", [&] { std::this_thread::sleep_for(milliseconds(c.rank() == 1 ? 1200 : 0)); },
        milliseconds(100));
  });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("work: waiting for rank 1 (thread host 0), "));
}

TEST(RunRankLocal, FindsAMissingRank) {
  const auto errors = ErrorsOfRanks(3,
                                    [](Communicator& c) {
                                      if (c.rank() == 2) return;
                                      collectives::RunRankLocal(c, "work", [] {});
                                    },
                                    {.warn_seconds = 0.5, .deadline_seconds = 4});
  for (int rank : {0, 1})
    EXPECT_THAT(errors[rank], AllOf(HasSubstr("tag work"), HasSubstr("rank 2 (")));
}

TEST(ReplicaCheck, BroadcastMakesReplicasEqual) {
  RunRanks(3, [](Communicator& c) {
    std::vector<float> weights(1001, static_cast<float>(c.rank() + 1));
    collectives::BroadcastAndVerify(c, weights);
    Require(weights.front() == 1.0f && weights.back() == 1.0f, "rank 0's weights");
  });
}

TEST(ReplicaCheck, NamesTheRanksInTheMinority) {
  for (size_t odd_element : {0, 500, 1000}) {
    const auto errors = ErrorsOfRanks(4, [&](Communicator& c) {
      std::vector<float> weights(1001, 1.0f);
      if (c.rank() == 0) weights[odd_element] = std::nextafter(1.0f, 2.0f);
      collectives::VerifyReplicas(c, weights, "weights", 20);
    });
    EXPECT_THAT(errors, Each(AllOf(HasSubstr("weights: replicas differ at step 20: rank 0 ("),
                                   HasSubstr("3 others"))));
  }
}

TEST(ReplicaCheck, NamesBothOfTwoRanks) {
  const auto errors = ErrorsOfRanks(2, [&](Communicator& c) {
    const std::vector<float> weights(3, static_cast<float>(c.rank()));
    collectives::VerifyReplicas(c, weights, "weights");
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("rank 0 ("), HasSubstr("rank 1 ("),
                                 HasSubstr("there is no majority"))));
}

}  // namespace
}  // namespace carole::testing
