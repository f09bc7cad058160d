// DeviceAllReduce over NCCL inside the engine, on emulated streams.
#include <gmock/gmock.h>

#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <future>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <thread>
#include <utility>

#include "collectives/reducer/reducer.h"
#include "src/core/error.h"
#include "src/core/float16.h"
#include "tests/support/emulated_device.h"

namespace carole::collectives {
namespace {

using carole::testing::EmulatedDevice;
using carole::testing::ErrorsOfRanks;
using carole::testing::RunRanks;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Nccl, SumsInTheOrderOfTheStream) {
  for (int size : {2, 3}) {
    RunRanks(size, [size](FullCommunicator& c) {
      EmulatedDevice device(c, 1000);
      for (int step = 1; step <= 300; step += 37) {  // enough steps to reuse slots
        device.Launch([&, step](std::span<float> v) {
          std::iota(v.begin(), v.end(), static_cast<float>(c.rank() * step));
        });
        auto first = c.AllReduceAsync(device.values().first(400), {.what = "a", .step = step});
        auto rest = c.AllReduceAsync(device.values().subspan(400), {.what = "b", .step = step});
        first->Wait();
        rest->Wait();
        device.Launch([](std::span<float> v) {
          for (float& x : v) x += 1;
        });
        const std::vector<float> sums = device.Fetch();
        const int of_ranks = step * size * (size - 1) / 2;
        for (int i = 0; i < 1000; ++i) ASSERT_EQ(sums[i], i * size + of_ranks + 1) << step;
      }
    });
  }
}

TEST(Nccl, ReusesTheSlotsOfTickets) {
  RunRanks(2, [](FullCommunicator& c) {
    EmulatedDevice device(c, 4);
    device.Launch([](std::span<float> v) { v[0] = 1; });
    for (int i = 0; i < 600; ++i) {
      c.AllReduceAsync(device.values(), {.what = "sum"})->Wait();
      device.Launch([](std::span<float> v) { v[0] /= 2; });
    }
    EXPECT_EQ(device.Fetch()[0], 1);
  });
}

TEST(Nccl, TheReducerOverlapsAndHostMemoryIsStillReduced) {
  RunRanks(2, [](FullCommunicator& c) {
    EmulatedDevice device(c, 1024);
    const std::vector<Range> parameters{{0, 256}, {256, 512}, {768, 256}};
    Reducer reducer(c, device.values(), parameters,
                    {.first_bucket_bytes = 1024, .bucket_bytes = 2048});
    for (int step = 0; step < 3; ++step) {
      reducer.BeginStep(step);
      double loss = c.rank() + 1;
      auto losses = c.AllReduceAsync(std::span(&loss, 1), {.what = "losses", .step = step});
      for (int p = 0; p < 3; ++p) {
        device.Launch([&, p](std::span<float> v) {
          for (float& x : v.subspan(parameters[p].offset, parameters[p].count))
            x = static_cast<float>(p + c.rank());
        });
        reducer.MarkReady(p);
      }
      losses->Wait();
      EXPECT_EQ(loss, 3);
      while (reducer.WaitNext()) {
      }
      const std::vector<float> sums = device.Fetch();
      for (int p = 0; p < 3; ++p) EXPECT_EQ(sums[parameters[p].offset], 2 * p + 1);
    }
  });
}

// Addends are rounded, and so is each addition. Other memory stays as it is. One range is not
// aligned, and one does not fit into the buffer of the wire.
TEST(Nccl, GradientsTravelAsBf16) {
  constexpr size_t kCount = (size_t{8} << 20) + 1003;
  const auto value = [](size_t i, int rank) {
    return 1 + 0.37F * static_cast<float>(i % 997) + 0.11F * static_cast<float>(rank);
  };
  const auto round = [](float x) { return static_cast<float>(Bf16(x)); };
  RunRanks(
      3,
      [&](FullCommunicator& c) {
        EmulatedDevice device(c, kCount);
        for (const auto& [begin, end] :
             {std::pair(size_t{8}, size_t{1008}), {size_t{1}, size_t{1004}}, {size_t{0}, kCount}}) {
          device.Launch([&](std::span<float> v) {
            for (size_t i = 0; i < v.size(); ++i) v[i] = value(i, c.rank());
          });
          c.AllReduce(device.values().subspan(begin, end - begin),
                      {.what = "gradients", .may_round = true});
          const std::vector<float> sums = device.Fetch();
          size_t num_wrong = 0;
          for (size_t i = 0; i < kCount; ++i) {
            float want = value(i, c.rank());
            if (begin <= i && i < end) {
              want = round(value(i, 0));
              for (int rank = 1; rank < 3; ++rank) want = round(want + round(value(i, rank)));
            }
            num_wrong += sums[i] != want;
          }
          EXPECT_EQ(num_wrong, 0) << begin << " to " << end;
        }
      },
      {.wire_dtype = DType::kBF16});
}

TEST(Nccl, OnlySumsThatMayBeRoundedTravelAsBf16) {
  RunRanks(2,
           [](FullCommunicator& c) {
             EmulatedDevice device(c, 64);
             device.Launch([](std::span<float> v) { std::ranges::fill(v, 1 + 0x1p-12F); });
             c.AllReduce(device.values().first(32), {.what = "statistics"});
             c.AllReduce(device.values().last(32), {.what = "gradients", .may_round = true});
             const std::vector<float> sums = device.Fetch();
             EXPECT_EQ(sums.front(), 2 + 0x1p-11F);
             EXPECT_EQ(sums.back(), 2);
           },
           {.wire_dtype = DType::kBF16});
}

// The emulation ends the process if memory is freed while it is registered, or if a communicator
// ends before that. `has_no_memory`: as on GPUs without virtual memory, or with an older NCCL.
TEST(Nccl, ArenasAreRegisteredWhileTheyExist) {
  for (const bool has_no_memory : {false, true}) {
    NcclFaults().has_no_memory = has_no_memory;
    const size_t before = DeviceRanges().Bytes();
    RunRanks(2,
             [&](FullCommunicator& c) {
               EmulatedDevice device(c, 16);
               const auto arena = c.AllocateDeviceArena(64 * sizeof(float));
               const std::span values(reinterpret_cast<float*>(arena->data()), size_t{64});
               std::vector<float> kept;
               device.Launch([&](std::span<float>) {
                 kept.assign(values.begin(), values.end());
                 std::ranges::fill(values, static_cast<float>(c.rank() + 1));
               });
               c.AllReduce(values.first(32), {.what = "gradients", .may_round = true});
               device.Launch([&](std::span<float>) {
                 kept.insert(kept.end(), values.begin(), values.end());
               });
               device.Fetch();
               std::vector<float> want(64, 0);
               want.insert(want.end(), 32, 3);
               want.insert(want.end(), 32, static_cast<float>(c.rank() + 1));
               EXPECT_EQ(kept, want) << "zero at first; then half of it is summed";
               const std::lock_guard lock(NcclMemory().mutex);
               const auto found = NcclMemory().registrations.find(arena->data());
               const bool is_of_nccl = found != NcclMemory().registrations.end();
               EXPECT_EQ(is_of_nccl ? found->second : -1, has_no_memory ? -1 : 1);
             },
             {.wire_dtype = DType::kBF16});
    EXPECT_TRUE(NcclMemory().registrations.empty());
    EXPECT_EQ(DeviceRanges().Bytes(), before);
  }
  NcclFaults().has_no_memory = false;
}

// Another attempt would fail in the same way, so the error is one of configuration.
TEST(Nccl, TooLargeArenasAreAnErrorOfConfiguration) {
  RunRanks(2, [](FullCommunicator& c) {
    EmulatedDevice device(c, 16);
    EXPECT_THAT([&] { static_cast<void>(c.AllocateDeviceArena(size_t{1} << 60)); },
                ThrowsMessage<DeviceMemoryError>(HasSubstr("GPU memory: not enough")));
  });
}

// A step is skipped if a sum is not finite, so the wire must not hide that.
TEST(Nccl, Bf16KeepsWhatIsNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  RunRanks(2,
           [kInfinity](FullCommunicator& c) {
             EmulatedDevice device(c, 8);
             device.Launch([&](std::span<float> v) {
               std::ranges::fill(v, 1.0F);
               if (c.rank() == 0) v[0] = kInfinity;
               if (c.rank() == 1) v[1] = std::numeric_limits<float>::quiet_NaN();
               // Only a bit that bf16 lacks makes this a NaN and not infinity.
               if (c.rank() == 1) v[2] = std::bit_cast<float>(0x7F800001);
               v[3] = c.rank() == 0 ? kInfinity : -kInfinity;
               v[4] = 2e38F;
             });
             c.AllReduce(device.values(), {.what = "gradients", .may_round = true});
             const std::vector<float> sums = device.Fetch();
             EXPECT_EQ(sums[0], kInfinity);
             for (int i : {1, 2, 3}) EXPECT_TRUE(std::isnan(sums[i])) << i;
             EXPECT_EQ(sums[4], kInfinity) << "the sum exceeds the range";
             EXPECT_EQ(sums[5], 2);
           },
           {.wire_dtype = DType::kBF16});
}

// The values of the ranks have different magnitudes, so that each order of additions rounds in its
// own way.
TEST(Nccl, AddsInTheOrderOfTheHostsTree) {
  for (const int size : {2, 4, 8}) {
    RunRanks(size,
             [](FullCommunicator& c) {
               EmulatedDevice device(c, 1000, {.in_tree_order = true});
               std::vector<float> host(1000);
               for (int i = 0; i < 1000; ++i) host[i] = std::sin(i + 1000.0F * c.rank());
               for (float& x : host) x *= std::exp2(static_cast<float>(c.rank() % 5));
               device.Launch([host](std::span<float> v) { std::ranges::copy(host, v.begin()); });
               c.AllReduce(device.values(), {.what = "gradients"});
               c.AllReduce(host, {.what = "gradients"});
               EXPECT_EQ(device.Fetch(), host);
             },
             {.all_reduce = AllReduceAlgorithm::kSharedMemory});
  }
}

// SyncBN's reductions would wait for gradients in flight if both used one communicator.
TEST(Nccl, UrgentSumsDoNotWaitForLargeOnes) {
  RunRanks(2, [](FullCommunicator& c) {
    EmulatedDevice device(c, 4096);
    device.Launch([](std::span<float> v) { std::ranges::fill(v, 1.0F); });
    NcclFaults().holds_large = true;
    const auto bucket = c.AllReduceAsync(device.values().first(4000), {.what = "gradients"});
    c.AllReduce(device.values().last(96), {.what = "batch norm", .is_urgent = true});
    std::atomic<float> sum = 0;
    device.Launch([&](std::span<float> v) { sum = v.back(); });
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (sum == 0 && std::chrono::steady_clock::now() < give_up)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(sum, 2);
    c.Barrier({.what = "all ranks have their sums"});
    NcclFaults().holds_large = false;
    bucket->Wait();
    EXPECT_EQ(device.Fetch().front(), 2);
  });
}

// The host only enqueues; how long the device waits is measured by the device.
TEST(Nccl, WaitingOfDevicesIsNotWaitingOfTheHost) {
  RunRanks(2, [](FullCommunicator& c) {
    EmulatedDevice device(c, 64);
    (void)c.TakeWaitStats();
    if (c.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    c.AllReduce(device.values(), {.what = "gradients"});
    device.Fetch();
    EXPECT_EQ(c.TakeWaitStats().waited_seconds, 0);
  });
}

TEST(Nccl, ComparesHeadersBeforeDataMoves) {
  const auto errors = ErrorsOfRanks(2, [](FullCommunicator& c) {
    EmulatedDevice device(c, 64);
    const auto data = device.values().first(c.rank() == 0 ? 64 : 32);
    c.AllReduce(data, {.what = "gradients", .step = 7});
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, ::testing::HasSubstr("rank 0"));
    EXPECT_THAT(error, ::testing::HasSubstr("64"));
    EXPECT_THAT(error, ::testing::HasSubstr("32"));
  }
}

TEST(Nccl, RefusesTwoRanksOnOneGpuUnlessTheyMayShare) {
  const std::vector<std::string> separate{"GPU-01 (a)", "GPU-02 (a)", "GPU-01 (b)"};
  const std::vector<std::string> shared{"GPU-01 (a)", "GPU-02 (a)", "GPU-02 (a)"};
  RequireOneRankPerGpu(separate, 22809, false);
  RequireOneRankPerGpu(shared, kMinVersionToShareGpus, true);
  const auto message = [&](int version, bool may_share) {
    return [&shared, version, may_share] { RequireOneRankPerGpu(shared, version, may_share); };
  };
  EXPECT_THAT(message(kMinVersionToShareGpus, false),
              ThrowsMessage<ConfigError>(AllOf(
                  HasSubstr("GPU-02 (a): ranks 1 and 2 both use it"),
                  HasSubstr("got NCCL 2.30.0 without NCCL_MULTI_RANK_GPU_ENABLE=1, want a GPU"))));
  EXPECT_THAT(message(22809, true),
              ThrowsMessage<ConfigError>(HasSubstr("got NCCL 2.28.9, want a GPU")));
}

TEST(Nccl, RefusesDifferentVersions) {
  const std::vector<std::string> names{"rank 0 (a)", "rank 1 (a)", "rank 2 (b)"};
  EXPECT_NO_THROW(RequireOneVersion(std::vector{22809, 22809, 22809}, names));
  EXPECT_THAT(
      [&] {
        RequireOneVersion(std::vector{22809, 22809, 23003}, names);
      },
      ::testing::ThrowsMessage<ConfigError>(
          ::testing::HasSubstr("got 2.28.9 on rank 0 (a) and 2.30.3 on rank 2 (b), want one")));
}

TEST(Nccl, TellsGpusApartByTheirUuid) {
  const NcclModule& nccl = *carole_nccl_module();
  EXPECT_EQ(nccl.uuid(0), "GPU-a0000000-0000-0000-0000-000000000000");
  EXPECT_NE(nccl.uuid(1), nccl.uuid(0));
}

// Slots are reused before anything has checked what is in flight.
TEST(Nccl, DoesNotTakeOldAllReducesForLateOnes) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::duration<double> kPause(4);
  EmulatedStream stream;
  const NcclModule& nccl = *carole_nccl_module();
  const std::vector<NcclLane> lanes{{{.id = nccl.make_id()}}};
  const std::unique_ptr<DeviceAllReduce> sums(
      nccl.connect(lanes, {.device = 0, .stream = &stream}, [] {}));
  float value = 1;
  const auto sum = [&] {
    const DeviceAllReduce::Ticket ticket = sums->Mark(false);
    sums->Enqueue(ticket, std::span(&value, 1), DType::kF32);
    sums->Join(ticket);
  };
  for (int i = 0; i < 300; ++i) sum();
  stream.Wait();
  std::this_thread::sleep_for(kPause);
  const auto start = Clock::now();
  std::promise<void> end;
  stream.Push([end = end.get_future().share()] { end.wait(); });
  sum();
  const std::chrono::duration<double> elapsed = Clock::now() - start;
  EXPECT_EQ(sums->FindProblem((elapsed + kPause).count()), "");
  EXPECT_THAT(sums->FindProblem(0), ::testing::HasSubstr("an all-reduce is not complete after"));
  end.set_value();
  stream.Wait();
}

// Two steps are in flight, so the all-reduces of the second one are enqueued long before they
// begin.
TEST(Nccl, CountsTheDeadlineFromTheEndOfTheAllReduceBefore) {
  using Clock = std::chrono::steady_clock;
  constexpr double kDeadline = 0.2;
  EmulatedStream stream;
  const NcclModule& nccl = *carole_nccl_module();
  const std::vector<NcclLane> lanes{{{.id = nccl.make_id()}}};
  const std::unique_ptr<DeviceAllReduce> sums(
      nccl.connect(lanes, {.device = 0, .stream = &stream}, [] {}));
  std::array<float, 2> values{};
  std::array<std::promise<void>, 2> ends;
  for (size_t i = 0; i < 2; ++i) {
    stream.Push([end = ends[i].get_future().share()] { end.wait(); });
    const DeviceAllReduce::Ticket ticket = sums->Mark(false);
    sums->Enqueue(ticket, std::span(&values[i], 1), DType::kF32);
    sums->Join(ticket);
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(kDeadline));
  EXPECT_NE(sums->FindProblem(kDeadline), "");
  ends[0].set_value();
  const auto limit = Clock::now() + std::chrono::seconds(60);
  while (sums->FindProblem(kDeadline) != "" && Clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_LT(Clock::now(), limit) << "the first one has ended, the second one has just begun";
  ends[1].set_value();
  stream.Wait();
}

void AllReduceWhile(std::atomic<bool>& fault) {
  RunRanks(2,
           [&](FullCommunicator& c) {
             EmulatedDevice device(c, 64);
             c.Barrier({});
             fault = true;
             c.AllReduce(device.values(), {.what = "gradients"});
             device.Fetch();
             std::this_thread::sleep_for(std::chrono::seconds(60));
           },
           {.deadline_seconds = 5});
}

TEST(NcclDeathTest, AnAllReduceThatDoesNotEndEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(AllReduceWhile(NcclFaults().hangs), ::testing::ExitedWithCode(69),
              "not complete after");
}

// This can happen in the first all-reduces, in which NCCL connects ranks.
TEST(NcclDeathTest, AnAllReduceThatNeverReachesItsStreamEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(AllReduceWhile(NcclFaults().pends), ::testing::ExitedWithCode(69),
              "not complete after");
}

// All threads that call CUDA block, on all ranks. So a thread that does not call it ends the job.
TEST(NcclDeathTest, ADriverThatDoesNotAnswerEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(AllReduceWhile(EmulatedDriverIsLocked()), ::testing::ExitedWithCode(69),
              "a call of CUDA or NCCL is not complete after 10 s; the driver of a GPU does not");
}

TEST(Nccl, AFailedPeerIsAnError) {
  const auto errors = ErrorsOfRanks(2, [](FullCommunicator& c) {
    EmulatedDevice device(c, 64);
    c.Barrier({});
    NcclFaults().fails = true;
    c.AllReduce(device.values(), {.what = "gradients"});
  });
  NcclFaults().fails = false;
  for (const std::string& error : errors)
    EXPECT_THAT(error, ::testing::HasSubstr("remote process exited: Net : Connection reset"));
}

// It is not an error like a lost peer, for which a batch script would start the job again.
TEST(Nccl, InvalidUsageIsAConfigError) {
  NcclFaults().refuses = true;
  const auto errors = ErrorsOfRanks(
      2, [](FullCommunicator& c) { EXPECT_THROW(EmulatedDevice(c, 64), ConfigError); });
  NcclFaults().refuses = false;
  EXPECT_THAT(errors, ::testing::Each(""));
}

// Without the error, the host would reduce the data, and access device memory.
TEST(Nccl, AKernelThatFailedIsAnError) {
  const auto errors = ErrorsOfRanks(2, [](FullCommunicator& c) {
    EmulatedDevice device(c, 64);
    c.Barrier({});
    EmulatedStickyError() = 700;
    c.AllReduce(device.values(), {.what = "gradients"});
  });
  EmulatedStickyError() = cudaSuccess;
  for (const std::string& error : errors) EXPECT_THAT(error, ::testing::HasSubstr("[nccl] cuda"));
}

// While the ranks do something else, the engine's thread checks the device about once a second.
TEST(NcclDeathTest, AKernelThatFailsBetweenAllReducesEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto fail = [] {
    RunRanks(2, [](FullCommunicator& c) {
      EmulatedDevice device(c, 64);
      c.AllReduce(device.values(), {.what = "gradients"});
      c.Barrier({});
      EmulatedStickyError() = 700;
      std::this_thread::sleep_for(std::chrono::seconds(10));
    });
  };
  EXPECT_EXIT(fail(), ::testing::ExitedWithCode(69), "emulated");
}

}  // namespace
}  // namespace carole::collectives
