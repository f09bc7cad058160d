// Every algorithm on every number of ranks, alone on a host and spread over several.
#include <gtest/gtest.h>

#include "collectives/algorithms.h"
#include "src/core/error.h"
#include "tests/support/collective_cases.h"
#include "tests/support/run_ranks.h"

namespace carole::testing {
namespace {

struct Case {
  int ranks;
  int per_host;  // 0: one host
  std::string algorithm;

  std::string Name() const {
    const std::string where = per_host == 0 ? "one_host" : fmt::format("{}perhost", per_host);
    return fmt::format("{}_{}ranks_{}", algorithm, ranks, where);
  }
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.Name(); }

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (int ranks : {1, 2, 3, 4, 7, 8}) {
    for (int per_host : {0, 1, 3}) {
      if (per_host >= ranks) continue;
      for (const auto& entry : collectives::kAllReduce) {
        const bool is_local = entry.sum_f32 != nullptr;
        if (is_local && (per_host == 0 || entry.name != "shared_memory")) {
          cases.push_back({ranks, per_host, std::string(entry.name)});
        }
      }
    }
  }
  return cases;
}

class AllReduceTest : public ::testing::TestWithParam<Case> {
 protected:
  CommunicatorOptions Options() const {
    // Short segments: the ring has several in flight at 2^20 elements.
    return {.deadline_seconds = 30,
            .all_reduce = GetParam().algorithm,
            .segment_bytes = 100'000,
            .ranks_per_host = GetParam().per_host};
  }
};

TEST_P(AllReduceTest, SumsAllCountsBitwiseEqual) {
  RunRanks(GetParam().ranks, CheckAllCounts, Options());
}

TEST_P(AllReduceTest, ManyInFlight) { RunRanks(GetParam().ranks, CheckInFlight, Options()); }

TEST_P(AllReduceTest, Reducer) {
  RunRanks(GetParam().ranks, CheckReducer<float>, Options());
  RunRanks(GetParam().ranks, CheckReducer<double>, Options());
}

INSTANTIATE_TEST_SUITE_P(Table, AllReduceTest, ::testing::ValuesIn(AllCases()),
                         [](const auto& info) { return info.param.Name(); });

TEST(Communicator, GatherAndBroadcast) {
  for (int ranks : {1, 2, 3, 4, 7, 8}) RunRanks(ranks, CheckGatherAndBroadcast);
}

TEST(Communicator, ArenasAreZeroedAndAligned) {
  RunRanks(3, [](Communicator& c) {
    for (size_t bytes : {0, 1, 100'000}) {
      const auto arena = c.AllocateArena(bytes);
      Require(arena->size() == bytes, "size");
      Require(reinterpret_cast<uintptr_t>(arena->data()) % Buffer::kAlignment == 0, "alignment");
      for (size_t i = 0; i < bytes; ++i) Require(arena->data()[i] == std::byte{0}, "zeroed");
    }
  });
}

TEST(Communicator, LocalRanksAreThoseOfTheHost) {
  RunRanks(5,
           [](Communicator& c) {
             Require(c.local_rank() == c.rank() % 2, "local rank");
             Require(c.local_size() == (c.rank() == 4 ? 1 : 2), "local size");
           },
           {.ranks_per_host = 2});
}

TEST(Communicator, RefusesUnknownAndUnfittingAlgorithms) {
  EXPECT_THROW(collectives::MakeLocalCommunicators(2, {.all_reduce = "telepathy"}), UsageError);
  EXPECT_THROW(collectives::MakeLocalCommunicators(2, {.all_reduce = "mpi"}), UsageError);
  EXPECT_THROW(
      collectives::MakeLocalCommunicators(4, {.all_reduce = "shared_memory", .ranks_per_host = 2}),
      UsageError);
}

TEST(Plan, SplitsEvenly) {
  using collectives::Piece;
  using collectives::SplitEvenly;
  EXPECT_EQ(SplitEvenly(10, 3, 0), (Piece{0, 4}));
  EXPECT_EQ(SplitEvenly(10, 3, 1), (Piece{4, 3}));
  EXPECT_EQ(SplitEvenly(10, 3, 2), (Piece{7, 3}));
  EXPECT_EQ(SplitEvenly(1, 3, 2), (Piece{1, 0}));
}

// What a member sends is what its right neighbour expects, and it never sends what it does not have
// yet.
TEST(Plan, RingsFitTogether) {
  for (int size : {2, 3, 5}) {
    for (size_t count : {0, 1, 4, 1000}) {
      std::vector<collectives::RingPlan> plans;
      for (int i = 0; i < size; ++i) plans.push_back(collectives::PlanRing(count, size, i, 64));
      for (int i = 0; i < size; ++i) {
        const auto& mine = plans[i];
        const auto& right = plans[(i + 1) % size];
        ASSERT_EQ(mine.steps.size(), right.steps.size());
        EXPECT_EQ(mine.steps.size(), 2 * (size - 1) * mine.lag);
        for (size_t s = 0; s < mine.steps.size(); ++s) {
          EXPECT_EQ(mine.steps[s].send, right.steps[s].receive);
          EXPECT_LE(mine.steps[s].send.count, mine.max_segment);
          if (s < mine.lag) continue;
          EXPECT_EQ(mine.steps[s].send, mine.steps[s - mine.lag].receive);
        }
      }
    }
  }
}

}  // namespace
}  // namespace carole::testing
