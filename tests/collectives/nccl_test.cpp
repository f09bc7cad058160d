// DeviceSums by NCCL inside the engine, on emulated streams.
#include "collectives/nccl/nccl.h"

#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <nccl.h>

#include <numeric>

#include "collectives/reducer.h"
#include "tests/support/run_ranks.h"

extern "C" const carole::collectives::NcclModule* carole_nccl_module();

namespace carole::collectives {
namespace {

using carole::testing::ErrorsOfRanks;
using carole::testing::RunRanks;

// A rank's device: a stream that computes and memory that only it may touch.
class Device {
 public:
  Device(Communicator& communicator, size_t count) : values_(count) {
    const char* begin = reinterpret_cast<const char*>(values_.data());
    range_ = {begin, begin + count * sizeof(float)};
    {
      const std::lock_guard lock(DeviceRanges().mutex);
      DeviceRanges().ranges.insert(range_);
    }
    NcclId id{};
    if (communicator.rank() == 0) id = carole_nccl_module()->make_id();
    communicator.Broadcast(std::as_writable_bytes(std::span(id)), 0, {.what = "id"});
    communicator.SetDeviceSums(std::unique_ptr<DeviceSums>(carole_nccl_module()->connect(
        id, communicator.rank(), communicator.size(), {.device = 0, .stream = &stream_}, [] {})));
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() {
    stream_.Wait();
    const std::lock_guard lock(DeviceRanges().mutex);
    DeviceRanges().ranges.erase(range_);
  }

  std::span<float> values() { return values_; }
  // Like a kernel: runs when the stream comes to it.
  void Launch(std::function<void(std::span<float>)> kernel) {
    stream_.Push([this, kernel = std::move(kernel)] { kernel(values_); });
  }
  std::vector<float> Fetch() {
    stream_.Wait();
    return values_;
  }

 private:
  std::vector<float> values_;
  std::pair<const char*, const char*> range_;
  EmulatedStream stream_;
};

TEST(Nccl, SumsInTheOrderOfTheStream) {
  for (int size : {2, 3}) {
    RunRanks(size, [size](Communicator& c) {
      Device device(c, 1000);
      for (int step = 1; step <= 300; step += 37) {  // slots are used again
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

TEST(Nccl, TicketsAreUsedAgain) {
  RunRanks(2, [](Communicator& c) {
    Device device(c, 4);
    device.Launch([](std::span<float> v) { v[0] = 1; });
    for (int i = 0; i < 600; ++i) {
      c.AllReduceAsync(device.values(), {.what = "sum"})->Wait();
      device.Launch([](std::span<float> v) { v[0] /= 2; });
    }
    EXPECT_EQ(device.Fetch()[0], 1);
  });
}

TEST(Nccl, ReducerOverlapsAndHostSumsGoOn) {
  RunRanks(2, [](Communicator& c) {
    Device device(c, 1024);
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

TEST(Nccl, ContractIsCheckedBeforeDataMoves) {
  const auto errors = ErrorsOfRanks(2, [](Communicator& c) {
    Device device(c, 64);
    const auto data = device.values().first(c.rank() == 0 ? 64 : 32);
    c.AllReduce(data, {.what = "gradients", .step = 7});
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, ::testing::HasSubstr("rank 0"));
    EXPECT_THAT(error, ::testing::HasSubstr("64"));
    EXPECT_THAT(error, ::testing::HasSubstr("32"));
  }
}

void SumWhile(std::atomic<bool>& fault) {
  fault = true;
  RunRanks(2,
           [](Communicator& c) {
             Device device(c, 64);
             c.AllReduce(device.values(), {.what = "gradients"});
             device.Fetch();
             std::this_thread::sleep_for(std::chrono::seconds(60));
           },
           {.deadline_seconds = 1});
}

TEST(NcclDeathTest, SumThatDoesNotEndEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(SumWhile(NcclFaults().hangs), ::testing::ExitedWithCode(69), "not through after");
}

TEST(Nccl, FailedPeerIsAnError) {
  const auto errors = ErrorsOfRanks(2, [](Communicator& c) {
    Device device(c, 64);
    c.Barrier({});
    NcclFaults().fails = true;
    c.AllReduce(device.values(), {.what = "gradients"});
  });
  NcclFaults().fails = false;
  for (const std::string& error : errors)
    EXPECT_THAT(error, ::testing::HasSubstr("remote process exited"));
}

}  // namespace
}  // namespace carole::collectives
