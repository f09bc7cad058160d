// Tests training steps of two ranks on the whole CUDA backend, with NCCL between the ranks, on
// emulated streams, which run work later than it is enqueued.
#include <cuda_runtime.h>
#include <gmock/gmock.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/train/loop/straggler.h"
#include "src/train/timing/reduction_speed.h"
#include "tests/support/emulated_device.h"
#include "tests/train/rank_training.h"

extern "C" carole::Backend* carole_make_cuda_backend(const carole::CudaOptions& options);

namespace carole::train {
namespace {

using carole::testing::ConnectByEmulatedNccl;
using carole::testing::FormulaSource;
using carole::testing::FullCommunicator;
using carole::testing::RankTraining;
using carole::testing::RunRanks;
using carole::testing::SmallStep;
using carole::testing::TrainingOutcome;

std::unique_ptr<Backend> MakeGpu(int /*threads*/) {
  return std::unique_ptr<Backend>(carole_make_cuda_backend({}));
}

using ResultsOfRanks = std::array<std::vector<StepResult>, 2>;

// Trains on two GPUs, with two steps in flight. The GPU of rank 1 pauses for `pause_us` before each
// kernel, and that of rank 0 for 200. Returns the results of the replayed steps, without batches
// and losses.
ResultsOfRanks TrainOnGpus(const StepOptions& options, int pause_us) {
  constexpr int64_t kSteps = 12;
  ResultsOfRanks results;
  RunRanks(2, [&](FullCommunicator& c) {
    const auto connect = [](FullCommunicator& ranks, const Backend& gpu) {
      ConnectByEmulatedNccl(ranks, gpu.gpu_stream()->stream);
    };
    SmallStep step(c, options,
                   {.backend = MakeGpu, .connect_devices = connect, .batch_norm = true});
    step.ChooseBucketSize();
    step.RecordDeviceSpans();
    auto* const stream = static_cast<cudaStream_t>(step.backend->gpu_stream()->stream);
    if (c.rank() == 1) Emulated(stream)->pause_us = pause_us;
    FormulaSource source({.rank = c.rank(), .size = c.size()});
    int64_t begun = 0;
    const auto begin = [&] {
      step.Begin(*source.Next(), {.step = begun, .learning_rate = 0.05});
      ++begun;
    };
    for (int64_t s = 0; s < kSteps; ++s) {
      if (step.num_in_flight() == 0) begin();
      if (begun < kSteps && step.CanRunAhead()) begin();
      StepResult result = step.End();
      result.batch = {};
      result.losses = {};
      if (s >= StepReplay::kWarmUpRuns) results[c.rank()].push_back(result);
    }
    EXPECT_EQ(step.replays(), kSteps - StepReplay::kWarmUpRuns);
  });
  return results;
}

// While it exists, the clocks of emulated GPUs count work, so that times are the same on any
// machine.
struct ClocksThatCountWork {
  ClocksThatCountWork() { EmulatedClockCountsWork() = true; }
  ClocksThatCountWork(const ClocksThatCountWork&) = delete;
  ClocksThatCountWork& operator=(const ClocksThatCountWork&) = delete;
  ~ClocksThatCountWork() { EmulatedClockCountsWork() = false; }
};

// Rank 0 has finished backward long before the gradients of rank 1 are there.
TEST(StepsOnGpus, MeasureExposedCommunicationInReplayedSteps) {
  const ClocksThatCountWork clocks;
  const ResultsOfRanks results = TrainOnGpus({.optimizer = "momentum"}, 3000);
  for (size_t s = 0; s < results[0].size(); ++s) {
    const double of_fast = results[0][s].exposed_communication_ms;
    const double of_slow = results[1][s].exposed_communication_ms;
    EXPECT_GT(of_slow, 0);
    EXPECT_GT(of_fast, 2 * of_slow);
    EXPECT_GT(of_fast, 20);
  }
}

// With SyncBN, rank 0 also waits for rank 1 in forward and backward.
TEST(StepsOnGpus, NameTheRankOfASlowGpu) {
  const ClocksThatCountWork clocks;
  for (const bool sync_batch_norm : {false, true}) {
    SCOPED_TRACE(sync_batch_norm ? "SyncBN" : "batch norm of each rank");
    const ResultsOfRanks results =
        TrainOnGpus({.optimizer = "momentum", .sync_batch_norm = sync_batch_norm}, 3000);
    std::vector<RankTimes> times;
    for (const std::vector<StepResult>& of_rank : results) {
      const StepResult& last = of_rank.back();
      times.push_back({.step = last.compute_ms + last.device_wait_ms,
                       .compute = last.compute_ms,
                       .waited = last.device_wait_ms});
    }
    const Straggler found = FindStraggler(times);
    EXPECT_EQ(found.rank, 1) << found.why;
    EXPECT_EQ(found.cause, StragglerCause::kCompute) << found.why;
    EXPECT_NEAR(times[1].compute, 15 * times[0].compute, 1e-6) << "rank 0 has waited, not computed";
  }
}

// The shards of a step are the same eight on any number of ranks.
TEST(StepsOnGpus, AreReproducibleOnAnyNumberOfRanks) {
  constexpr int64_t kSteps = 6, kShards = 8;
  RankTraining training{.rows = 2,
                        .num_samples = 40,
                        .steps = kSteps,
                        .backend = MakeGpu,
                        .options = {.optimizer = "momentum", .reproducible = true},
                        .run_ahead = true};
  TrainingOutcome one;
  for (const int ranks : {1, 2, 4}) {
    SCOPED_TRACE(ranks);
    training.num_ranks = ranks;
    training.options.accumulation_steps = kShards / ranks;
    training.connect_devices = [](FullCommunicator& c, const Backend& gpu) {
      ConnectByEmulatedNccl(c, gpu.gpu_stream()->stream, {.in_tree_order = true});
    };
    const TrainingOutcome outcome = Train(training);
    if (ranks == 1) one = outcome;
    EXPECT_EQ(outcome.losses, one.losses);
    EXPECT_EQ(outcome.weights, one.weights);
    EXPECT_EQ(outcome.replays, kSteps - StepReplay::kWarmUpRuns);
  }
}

// The spans of a step by their names. Buckets are numbered.
std::map<std::string, DeviceSpan> ByName(const StepResult& result) {
  std::map<std::string, DeviceSpan> spans;
  for (const DeviceSpan& span : result.device_spans)
    spans[span.what == "gradients" ? span.what + std::to_string(span.bucket) : span.what] = span;
  return spans;
}

bool IsInside(const DeviceSpan& inner, const DeviceSpan& outer) {
  return inner.start >= outer.start && inner.end <= outer.end && inner.start <= inner.end;
}

// The buckets are so small that each variable with a gradient has its own.
TEST(StepsOnGpus, ShowTheReductionsOfReplayedSteps) {
  const ClocksThatCountWork clocks;
  const ResultsOfRanks results =
      TrainOnGpus({.optimizer = "momentum",
                   .buckets = {.first_bucket_bytes = 1, .bucket_bytes = 1},
                   .sync_batch_norm = true},
                  200);
  for (const std::vector<StepResult>& of_rank : results) {
    for (const StepResult& result : of_rank) {
      const auto spans = ByName(result);
      const DeviceSpan& step = spans.at("step");
      EXPECT_EQ(spans.size(), 2 + 4 + 2) << "batch norm and losses, variables, step and wait";
      for (const auto& [name, span] : spans) EXPECT_TRUE(IsInside(span, step)) << name;
      EXPECT_LT(spans.at("gradients0").start, spans.at("wait for reductions").start);
      EXPECT_LE(spans.at("gradients3").end, spans.at("wait for reductions").end);
      EXPECT_NE(spans.at("gradients0").stream, spans.at("batch norm").stream);
      EXPECT_NE(spans.at("gradients0").stream, step.stream);
      EXPECT_EQ(spans.at("gradients0").stream, spans.at("gradients3").stream);
    }
  }
}

// The net is so small that one bucket is best, whatever the measurement says.
TEST(StepsOnGpus, ChooseTheSizeOfBuckets) {
  const ResultsOfRanks results =
      TrainOnGpus({.optimizer = "momentum",
                   .buckets = {.first_bucket_bytes = 1, .bucket_bytes = 1},
                   .tune_buckets = true},
                  200);
  for (const std::vector<StepResult>& of_rank : results) {
    for (const StepResult& result : of_rank) {
      const auto spans = ByName(result);
      EXPECT_TRUE(spans.contains("gradients0"));
      EXPECT_FALSE(spans.contains("gradients1"));
    }
  }
}

// A rank that comes first waits for the others, which is not part of the latency.
TEST(StepsOnGpus, MeasureReductionsWithoutWaiting) {
  const ClocksThatCountWork clocks;
  constexpr int kPauseUs = 10'000;
  std::array<ReductionSpeed, 2> speeds;
  RunRanks(2, [&](FullCommunicator& c) {
    const auto gpu = MakeGpu(1);
    auto* const stream = static_cast<cudaStream_t>(gpu->gpu_stream()->stream);
    ConnectByEmulatedNccl(c, stream);
    const auto arena = c.AllocateDeviceArena(1 << 20);
    if (c.rank() == 1) Emulated(stream)->pause_us = kPauseUs;
    speeds[c.rank()] = MeasureReductions(
        *gpu, c, {reinterpret_cast<float*>(arena->data()), arena->size() / sizeof(float)});
    Emulated(stream)->pause_us = 0;
  });
  for (const ReductionSpeed& speed : speeds) {
    // Reading the clock after the sum is a work of its own.
    EXPECT_NEAR(speed.latency_us, 2 * 200 + 4096 * 1e-3, 1e-6);
    EXPECT_NEAR(speed.us_per_byte, 1e-3 / sizeof(float), 1e-9);
  }
}

}  // namespace
}  // namespace carole::train
