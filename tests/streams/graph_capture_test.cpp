// Tests captured work of streams, including NCCL's all-reduces, on emulated streams.
#include "src/backend/cuda/runtime/graph_capture.h"

#include <cuda_runtime.h>
#include <gmock/gmock.h>

#include "collectives/reducer/reducer.h"
#include "src/core/error.h"
#include "tests/support/emulated_device.h"

namespace carole::cuda {
namespace {

using carole::testing::EmulatedDevice;
using carole::testing::FullCommunicator;
using carole::testing::RunRanks;
using collectives::Range;

TEST(GraphCapture, RunsNothingUntilItIsReplayed) {
  EmulatedStream stream;
  std::atomic<int> runs{0};
  const auto graph = CaptureGraph(&stream, [&] { stream.Push([&] { ++runs; }); });
  stream.Wait();
  EXPECT_EQ(runs, 0);
  for (int i = 1; i <= 3; ++i) {
    graph->Replay();
    stream.Wait();
    EXPECT_EQ(runs, i);
  }
}

TEST(GraphCapture, EndsWhenTheCapturedFunctionThrows) {
  EmulatedStream stream;
  EXPECT_THROW(CaptureGraph(&stream, [] { throw DataError("why"); }), DataError);
  int runs = 0;
  stream.Push([&] { ++runs; });
  stream.Wait();
  EXPECT_EQ(runs, 1);
}

TEST(GraphCapture, RefusesStreamsThatAreNotJoined) {
  EmulatedStream stream, other;
  cudaEvent_t event = nullptr;
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  EXPECT_THROW(CaptureGraph(&stream,
                            [&] {
                              cudaEventRecord(event, &stream);
                              cudaStreamWaitEvent(&other, event, 0);
                              other.Push([] {});
                            }),
               DeviceError);
  cudaEventDestroy(event);
}

// Imitates a training step: kernels write gradients, the reducer all-reduces buckets at the same
// time, and a kernel uses the sums. The step number is read from memory, as in a captured step. The
// numbers are small enough for bf16.
void ReplaySteps(DType wire) {
  const auto work = [](FullCommunicator& c) {
    EmulatedDevice device(c, 1024);
    const std::vector<Range> parameters{{0, 256}, {256, 512}, {768, 256}};
    collectives::Reducer reducer(c, device.values(), parameters,
                                 {.first_bucket_bytes = 1024, .bucket_bytes = 2048});
    int number = 0;  // the current step
    std::vector<float> used;
    const auto enqueue = [&] {
      reducer.BeginStep(number);
      for (int p = 0; p < 3; ++p) {
        device.Launch([&, p](std::span<float> v) {
          for (float& x : v.subspan(parameters[p].offset, parameters[p].count))
            x = static_cast<float>(number % 100 + p + c.rank());
        });
        reducer.MarkReady(p);
      }
      while (reducer.WaitNext()) {
      }
      device.Launch([&](std::span<float> v) {
        for (const Range& range : parameters) used.push_back(v[range.offset + range.count - 1]);
      });
    };
    std::unique_ptr<CapturedWork> graph;
    for (; number < 300; ++number) {  // more steps than there are CUDA events
      used.clear();
      if (number < 2) {
        enqueue();
      } else {
        if (number == 2) graph = CaptureGraph(device.stream(), enqueue);
        c.Replay([&] { graph->Replay(); }, {.what = "captured work", .step = number});
      }
      device.stream()->Wait();
      const auto base = static_cast<float>(2 * (number % 100));
      ASSERT_THAT(used, ::testing::ElementsAre(base + 1, base + 3, base + 5)) << number;
    }
  };
  RunRanks(2, work, {.wire_dtype = wire});
}

TEST(GraphCapture, StepsOfSeveralRanksReplayTheirAllReduces) { ReplaySteps(DType::kF32); }

TEST(GraphCapture, StepsOfSeveralRanksReplayAllReducesInBf16) { ReplaySteps(DType::kBF16); }

// A thread that waits for an all-reduce checks its progress every second. While the work is
// captured, it must not query events, since that would end the capture.
TEST(GraphCapture, SurvivesARankThatIsLate) {
  RunRanks(2, [](FullCommunicator& c) {
    EmulatedDevice device(c, 64);
    const auto sum = [&] { c.AllReduce(device.values(), {.what = "gradients"}); };
    device.Launch([](std::span<float> v) { std::ranges::fill(v, 1.0f); });
    sum();
    const auto graph = CaptureGraph(device.stream(), [&] {
      if (c.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1200));
      sum();
    });
    c.Replay([&] { graph->Replay(); }, {.what = "captured work"});
    float last = 0;
    device.Launch([&](std::span<float> v) { last = v.back(); });
    device.stream()->Wait();
    EXPECT_EQ(last, 4) << "two all-reduces over two ranks";
  });
}

// The host of rank 0 waits, as its device starts when that of rank 1 does.
TEST(GraphCapture, WaitingForALateRankBeforeAReplayCounts) {
  using Clock = std::chrono::steady_clock;
  RunRanks(2, [](FullCommunicator& c) {
    (void)c.TakeWaitStats();
    if (c.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const auto begin = Clock::now();
    c.Replay([] {}, {.what = "captured work"});
    const std::chrono::duration<double> took = Clock::now() - begin;
    const double waited = c.TakeWaitStats().waited_seconds;
    EXPECT_LE(waited, took.count());
    if (c.rank() == 0) {
      EXPECT_GT(waited, 0);
    }
  });
}

TEST(GraphCapture, RanksMustReplayTheSameStep) {
  const auto errors = carole::testing::ErrorsOfRanks(2, [](FullCommunicator& c) {
    c.Replay([] { FAIL() << "replayed"; }, {.what = "captured work", .step = c.rank()});
  });
  for (const std::string& error : errors) EXPECT_THAT(error, ::testing::HasSubstr("step"));
}

void ReplayAHungAllReduce() {
  RunRanks(2,
           [](FullCommunicator& c) {
             EmulatedDevice device(c, 64);
             const auto graph = CaptureGraph(
                 device.stream(), [&] { c.AllReduce(device.values(), {.what = "gradients"}); });
             NcclFaults().hangs = true;
             c.Replay([&] { graph->Replay(); }, {.what = "captured work"});
             device.stream()->Wait();
             std::this_thread::sleep_for(std::chrono::seconds(60));
           },
           {.deadline_seconds = 5});
}

// The process must end although the graph still exists: NCCL's own abort would wait for the graph.
TEST(GraphCaptureDeathTest, AReplayedAllReduceThatHangsEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(ReplayAHungAllReduce(), ::testing::ExitedWithCode(69), "not complete after");
}

}  // namespace
}  // namespace carole::cuda
