// Every algorithm on several numbers of ranks, on one host and on several.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "collectives/algorithms/algorithms.h"
#include "src/core/error.h"
#include "src/core/files/tuning_cache.h"
#include "tests/support/collective_cases.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace carole::testing {
namespace {

using collectives::AllReduceAlgorithm;

struct Case {
  int ranks;
  int per_host;  // 0: one host
  AllReduceAlgorithm algorithm;

  std::string Name() const {
    const std::string where = per_host == 0 ? "one_host" : fmt::format("{}perhost", per_host);
    return fmt::format("{}_{}ranks_{}", collectives::Name(algorithm), ranks, where);
  }
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.Name(); }

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (int ranks : {1, 2, 3, 4, 7, 8}) {
    for (int per_host : {0, 1, 3}) {
      if (per_host >= ranks) continue;
      for (const auto& entry : collectives::kAllReduce) {
        // Algorithms that only send messages do not depend on hosts. On one host, shared memory is
        // the only one of the others.
        const bool is_for_messages = entry.algorithm == AllReduceAlgorithm::kRing ||
                                     entry.algorithm == AllReduceAlgorithm::kTree;
        const bool is_shared = entry.algorithm == AllReduceAlgorithm::kSharedMemory;
        if (entry.sum_f32 == nullptr || (is_for_messages && per_host != 1)) continue;
        if (is_shared == (per_host == 0)) cases.push_back({ranks, per_host, entry.algorithm});
      }
    }
  }
  return cases;
}

class AllReduceTest : public ::testing::TestWithParam<Case> {
 protected:
  CommunicatorOptions Options() const {
    // Short segments, so that the ring has several in flight at 2^20 elements.
    return {.deadline_seconds = 30,
            .all_reduce = GetParam().algorithm,
            .segment_bytes = 100'000,
            .ranks_per_host = GetParam().per_host};
  }
};

TEST_P(AllReduceTest, SumsAllCountsBitwiseEqual) {
  RunRanks(GetParam().ranks, CheckAllCounts, Options());
}

TEST_P(AllReduceTest, RunsManyOperationsInFlight) {
  RunRanks(GetParam().ranks, CheckInFlight, Options());
}

TEST_P(AllReduceTest, WorksInTheReducer) {
  RunRanks(GetParam().ranks, CheckReducer<float>, Options());
  RunRanks(GetParam().ranks, CheckReducer<double>, Options());
}

INSTANTIATE_TEST_SUITE_P(Table, AllReduceTest, ::testing::ValuesIn(AllCases()),
                         [](const auto& info) { return info.param.Name(); });

TEST(Communicator, GathersAndBroadcasts) {
  for (int ranks : {1, 2, 3, 4, 6, 7}) {
    for (int per_host : {0, 1, 2, 3}) {
      RunRanks(ranks, CheckGatherAndBroadcast,
               {.segment_bytes = 100'000, .ranks_per_host = per_host});
    }
  }
}

TEST(Communicator, SumsInBf16BetweenHosts) {
  for (int ranks : {2, 3, 4, 7}) {
    for (int per_host : {1, 2}) {
      RunRanks(ranks, CheckBf16,
               {.all_reduce = AllReduceAlgorithm::kHierarchical,
                .wire_dtype = DType::kBF16,
                .segment_bytes = 50'000,
                .ranks_per_host = per_host});
    }
  }
}

// Messages and shared memory add the values of the ranks as the same binary tree.
TEST(Communicator, TreesAddInTheSameOrderOnAnyHosts) {
  const auto value = [](int rank) { return 1.0f + static_cast<float>(rank) * 0x1.23p-20f; };
  const float want = ((value(0) + value(1)) + (value(2) + value(3))) +
                     ((value(4) + value(5)) + (value(6) + value(7)));
  for (int per_host : {0, 1, 2, 4}) {
    for (size_t count : {100, 10'000}) {
      RunRanks(8,
               [&](FullCommunicator& c) {
                 std::vector<float> data(count, value(c.rank()));
                 c.AllReduce(data, {});
                 for (float x : data) Require(x == want, "the tree's sum");
               },
               {.all_reduce = AllReduceAlgorithm::kHierarchicalTree, .ranks_per_host = per_host});
    }
  }
}

// Returns the lines of a file of choices, without the first.
std::vector<std::string> Choices(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  if (!lines.empty()) lines.erase(lines.begin());
  return lines;
}

TEST(Communicator, AutoTakesTheChoiceOfAnEarlierJob) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/cache/all_reduce";
  constexpr size_t kCount = 10'000;
  std::string chosen;
  const auto run = [&](int per_host) {
    RunRanks(4,
             [&](FullCommunicator& c) {
               std::vector<float> data(kCount);
               CheckAllReduce<float>(c, data);
               if (c.rank() == 0) chosen = Name(c.all_reduce_for(kCount * sizeof(float)));
             },
             {.choices_path = path, .ranks_per_host = per_host});
  };
  run(2);
  ASSERT_EQ(Choices(path).size(), 1U);
  const std::string line = Choices(path).front();
  const size_t task = line.find('\t') + 1, choice = line.rfind('\t') + 1;
  EXPECT_EQ(line.substr(choice), chosen);
  EXPECT_EQ(line.substr(task, choice - 1 - task), "32768 bytes of fp32");

  for (const std::string other : {"hierarchical", "hierarchical_tree"}) {
    TuningCache(path, line.substr(0, task - 1)).Add("32768 bytes of fp32", other);
    run(2);
    EXPECT_EQ(chosen, other);
    ASSERT_EQ(Choices(path).size(), 1U) << "nothing was measured";
  }
  run(1);
  EXPECT_EQ(Choices(path).size(), 2U) << "other hosts have choices of their own";
  TuningCache(path, line.substr(0, task - 1)).Add("32768 bytes of fp32", "ring");
  run(2);
  EXPECT_NE(chosen, "ring") << "not a candidate on these hosts, so it is measured again";
}

TEST(Communicator, AutoMeasuresOnceForEachSizeAndAgrees) {
  for (int per_host : {1, 2}) {
    RunRanks(4,
             [](FullCommunicator& c) {
               for (size_t count : {1000, 1023, 100'000}) {
                 std::vector<float> data(count);
                 CheckAllReduce<float>(c, data);
                 Require(c.all_reduce_for(count * sizeof(float)) != AllReduceAlgorithm::kAuto,
                         "chosen");
                 CheckAllReduce<float>(c, data);
               }
               Require(c.all_reduce_for(4096) == c.all_reduce_for(4100), "one choice for a size");
               Require(c.all_reduce_for(64 << 10) == AllReduceAlgorithm::kAuto, "not measured yet");
               Require(c.all_reduce() == AllReduceAlgorithm::kAuto, "still automatic");
             },
             {.ranks_per_host = per_host});
  }
  RunRanks(2, [](FullCommunicator& c) {
    Require(c.all_reduce_for(4096) == AllReduceAlgorithm::kSharedMemory,
            "one host needs no measuring");
  });
}

TEST(Communicator, TheObserverGetsCompletedOperations) {
  RunRanks(2, [](FullCommunicator& c) {
    std::vector<collectives::CollectiveRecord> records;
    std::string what;
    c.SetObserver([&](const collectives::CollectiveRecord& record) {
      records.push_back(record);
      what = record.what;
    });
    std::vector<float> data(1000);
    c.AllReduce(data, {.what = "gradients", .step = 3, .bucket = 2});
    c.SetObserver(nullptr);
    c.Barrier({});
    Require(records.size() == 1, "one record");
    const auto& r = records[0];
    Require(r.operation == collectives::Operation::kAllReduce && what == "gradients", "names");
    Require(r.algorithm == "shared_memory", "algorithm");
    Require(r.step == 3 && r.bucket == 2 && r.bytes == 4000, "numbers");
    Require(r.start <= r.all_arrived && r.all_arrived <= r.end, "times");
  });
}

// Threads share one clock, so the clocks of hosts made of threads are equal.
TEST(Communicator, MeasuresTheClockOffset) {
  for (int per_host : {0, 1}) {
    RunRanks(3,
             [](FullCommunicator& c) {
               Require(std::abs(c.ClockOffset()) < 0.05, fmt::format("{} s", c.ClockOffset()));
             },
             {.ranks_per_host = per_host});
  }
}

TEST(Communicator, MeasuresHowLongARankWaitsForOthers) {
  using Clock = std::chrono::steady_clock;
  RunRanks(2, [](FullCommunicator& c) {
    std::vector<float> data(1000);
    const auto start = Clock::now();
    Clock::duration slept{};
    for (int step = 0; step < 3; ++step) {
      const auto begin = Clock::now();
      if (c.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(400));
      slept += Clock::now() - begin;
      for (int bucket = 0; bucket < 3; ++bucket) {
        c.AllReduce(data, {.what = "gradients", .step = step, .bucket = bucket});
      }
    }
    const collectives::WaitStats stats = c.TakeWaitStats();
    const std::chrono::duration<double> awake = Clock::now() - start - slept;
    Require(c.rank() == 0 ? stats.waited_seconds > 0.2 : stats.waited_seconds <= awake.count(),
            "rank 0 waits for rank 1");
    Require(c.TakeWaitStats().waited_seconds == 0, "taken");
  });
}

TEST(Communicator, ArenasAreZeroedAndAligned) {
  RunRanks(3, [](FullCommunicator& c) {
    for (size_t bytes : {0, 1, 100'000}) {
      const auto arena = c.AllocateArena(bytes);
      Require(arena->size() == bytes, "size");
      Require(reinterpret_cast<uintptr_t>(arena->data()) % Buffer::kAlignment == 0, "alignment");
      for (size_t i = 0; i < bytes; ++i) Require(arena->data()[i] == std::byte{0}, "zeroed");
    }
  });
}

TEST(Communicator, NumbersLocalRanksOnEachHost) {
  RunRanks(5,
           [](FullCommunicator& c) {
             Require(c.local_rank() == c.rank() % 2, "local rank");
             Require(c.local_size() == (c.rank() == 4 ? 1 : 2), "local size");
           },
           {.ranks_per_host = 2});
}

TEST(Communicator, RefusesUnfittingAlgorithms) {
  EXPECT_THROW(collectives::MakeLocalCommunicators(2, {.all_reduce = AllReduceAlgorithm::kMpi}),
               UsageError);
  EXPECT_THROW(collectives::MakeLocalCommunicators(
                   4, {.all_reduce = AllReduceAlgorithm::kSharedMemory, .ranks_per_host = 2}),
               UsageError);
}

TEST(CommunicatorOptions, ParsesNames) {
  EXPECT_EQ(collectives::ParseAllReduce("auto"), AllReduceAlgorithm::kAuto);
  for (const auto& row : collectives::kAllReduce)
    EXPECT_EQ(collectives::ParseAllReduce(collectives::Name(row.algorithm)), row.algorithm);
  EXPECT_THROW(collectives::ParseAllReduce("telepathy"), UsageError);
  EXPECT_THROW(collectives::ParseAllReduce("nccl"), UsageError) << "cannot be selected";
}

TEST(Plan, SplitsEvenly) {
  using collectives::Piece;
  using collectives::SplitEvenly;
  EXPECT_EQ(SplitEvenly(10, 3, 0), (Piece{0, 4}));
  EXPECT_EQ(SplitEvenly(10, 3, 1), (Piece{4, 3}));
  EXPECT_EQ(SplitEvenly(10, 3, 2), (Piece{7, 3}));
  EXPECT_EQ(SplitEvenly(1, 3, 2), (Piece{1, 0}));
}

// A member sends what its right neighbor expects, and never sends what it does not have yet.
TEST(Plan, MembersOfARingSendWhatTheirNeighborsExpect) {
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
