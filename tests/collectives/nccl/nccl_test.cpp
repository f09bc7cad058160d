// DeviceAllReduce over NCCL inside the engine, on emulated streams.
#include <gmock/gmock.h>

#include <chrono>
#include <future>
#include <memory>
#include <numeric>
#include <span>
#include <thread>

#include "collectives/reducer/reducer.h"
#include "src/core/error.h"
#include "tests/support/emulated_device.h"

namespace carole::collectives {
namespace {

using carole::testing::EmulatedDevice;
using carole::testing::ErrorsOfRanks;
using carole::testing::RunRanks;

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
  const std::vector<std::string> separate{"00:01 (a)", "00:02 (a)", "00:01 (b)"};
  const std::vector<std::string> shared{"00:01 (a)", "00:02 (a)", "00:02 (a)"};
  RequireOneRankPerGpu(separate, 22809, false);
  RequireOneRankPerGpu(shared, kMinVersionToShareGpus, true);
  const auto message = [&](int version, bool may_share) {
    return [&shared, version, may_share] { RequireOneRankPerGpu(shared, version, may_share); };
  };
  using ::testing::AllOf;
  using ::testing::HasSubstr;
  using ::testing::ThrowsMessage;
  EXPECT_THAT(message(kMinVersionToShareGpus, false),
              ThrowsMessage<ConfigError>(AllOf(
                  HasSubstr("GPU 00:02 (a): ranks 1 and 2 both use it"),
                  HasSubstr("got NCCL 2.30.0 without NCCL_MULTI_RANK_GPU_ENABLE=1, want a GPU"))));
  EXPECT_THAT(message(22809, true),
              ThrowsMessage<ConfigError>(HasSubstr("got NCCL 2.28.9, want a GPU")));
}

// Slots are reused before anything has checked what is in flight.
TEST(Nccl, DoesNotTakeOldAllReducesForLateOnes) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::duration<double> kPause(4);
  EmulatedStream stream;
  const NcclModule& nccl = *carole_nccl_module();
  const std::unique_ptr<DeviceAllReduce> sums(
      nccl.connect(nccl.make_id(), 0, 1, {.device = 0, .stream = &stream}, [] {}));
  float value = 1;
  const auto sum = [&] {
    const DeviceAllReduce::Ticket ticket = sums->Mark();
    sums->Enqueue(ticket, std::span(&value, 1));
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
