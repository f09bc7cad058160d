// Recorded stretches of streams, NCCL's sums in them, on emulated streams.
#include "src/backend/cuda/runtime/recording.h"

#include <cuda_runtime.h>
#include <gmock/gmock.h>

#include "collectives/reducer/reducer.h"
#include "src/core/error.h"
#include "tests/support/emulated_device.h"

namespace carole::cuda {
namespace {

using carole::testing::Communicator;
using carole::testing::EmulatedDevice;
using carole::testing::RunRanks;
using collectives::Range;

TEST(Recording, RunsNothingUntilItIsReplayed) {
  EmulatedStream stream;
  std::atomic<int> runs{0};
  const auto recording = RecordGraph(&stream, [&] { stream.Push([&] { ++runs; }); });
  stream.Wait();
  EXPECT_EQ(runs, 0);
  for (int i = 1; i <= 3; ++i) {
    recording->Replay();
    stream.Wait();
    EXPECT_EQ(runs, i);
  }
}

TEST(Recording, EndsWhenWhatIsRecordedThrows) {
  EmulatedStream stream;
  EXPECT_THROW(RecordGraph(&stream, [] { throw DataError("why"); }), DataError);
  int runs = 0;
  stream.Push([&] { ++runs; });
  stream.Wait();
  EXPECT_EQ(runs, 1);
}

TEST(Recording, StreamsThatAreNotJoinedAreAnError) {
  EmulatedStream stream, other;
  cudaEvent_t event = nullptr;
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  EXPECT_THROW(RecordGraph(&stream,
                           [&] {
                             cudaEventRecord(event, &stream);
                             cudaStreamWaitEvent(&other, event, 0);
                             other.Push([] {});
                           }),
               DeviceError);
  cudaEventDestroy(event);
}

// A step as it is trained: kernels fill gradients, the reducer sums buckets beside them, a kernel
// uses the sums. Numbers of the step come from memory.
TEST(Recording, StepsOfSeveralRanksReplayTheirSums) {
  RunRanks(2, [](Communicator& c) {
    EmulatedDevice device(c, 1024);
    const std::vector<Range> parameters{{0, 256}, {256, 512}, {768, 256}};
    collectives::Reducer reducer(c, device.values(), parameters,
                                 {.first_bucket_bytes = 1024, .bucket_bytes = 2048});
    int number = 0;  // of the step
    std::vector<float> used;
    const auto enqueue = [&] {
      reducer.BeginStep(number);
      for (int p = 0; p < 3; ++p) {
        device.Launch([&, p](std::span<float> v) {
          for (float& x : v.subspan(parameters[p].offset, parameters[p].count))
            x = static_cast<float>(100 * number + p + c.rank());
        });
        reducer.MarkReady(p);
      }
      while (reducer.WaitNext()) {
      }
      device.Launch([&](std::span<float> v) {
        for (const Range& range : parameters) used.push_back(v[range.offset + range.count - 1]);
      });
    };
    std::unique_ptr<Recording> recording;
    for (; number < 300; ++number) {  // more than there are events
      used.clear();
      if (number < 2) {
        enqueue();
      } else {
        if (number == 2) recording = RecordGraph(device.stream(), enqueue);
        c.Replay([&] { recording->Replay(); }, {.what = "recorded", .step = number});
      }
      device.stream()->Wait();
      const auto base = static_cast<float>(200 * number);
      ASSERT_THAT(used, ::testing::ElementsAre(base + 1, base + 3, base + 5)) << number;
    }
  });
}

// Who waits looks each second whether sums end: not at events, while it records.
TEST(Recording, LastsThoughAnotherRankComesLate) {
  RunRanks(2, [](Communicator& c) {
    EmulatedDevice device(c, 64);
    const auto sum = [&] { c.AllReduce(device.values(), {.what = "gradients"}); };
    device.Launch([](std::span<float> v) { std::ranges::fill(v, 1.0f); });
    sum();
    const auto recording = RecordGraph(device.stream(), [&] {
      if (c.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1200));
      sum();
    });
    c.Replay([&] { recording->Replay(); }, {.what = "recorded"});
    float last = 0;
    device.Launch([&](std::span<float> v) { last = v.back(); });
    device.stream()->Wait();
    EXPECT_EQ(last, 4) << "two sums over two ranks";
  });
}

TEST(Recording, RanksMustReplayTheSameStep) {
  const auto errors = carole::testing::ErrorsOfRanks(2, [](Communicator& c) {
    c.Replay([] { FAIL() << "replayed"; }, {.what = "recorded", .step = c.rank()});
  });
  for (const std::string& error : errors) EXPECT_THAT(error, ::testing::HasSubstr("step"));
}

void ReplayForEver() {
  RunRanks(2,
           [](Communicator& c) {
             EmulatedDevice device(c, 64);
             const auto recording = RecordGraph(
                 device.stream(), [&] { c.AllReduce(device.values(), {.what = "gradients"}); });
             NcclFaults().hangs = true;
             c.Replay([&] { recording->Replay(); }, {.what = "recorded"});
             device.stream()->Wait();
             std::this_thread::sleep_for(std::chrono::seconds(60));
           },
           {.deadline_seconds = 5});
}

// Though its recording is still there, for whose end NCCL's own abort would wait.
TEST(RecordingDeathTest, ReplayedSumThatDoesNotEndEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(ReplayForEver(), ::testing::ExitedWithCode(69), "not through after");
}

}  // namespace
}  // namespace carole::cuda
