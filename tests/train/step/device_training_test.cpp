// Tests training on a device. It gives the same bits in memory that the host cannot touch as in
// host memory, and nearly the same values with the kernels of the CUDA backend.
#include "tests/train/step/device_training.h"

#include <gmock/gmock.h>

#include <cmath>

#include "src/train/evaluation/evaluate.h"
#include "src/train/loop/trainer.h"
#include "tests/support/temporary_folder.h"

namespace carole::train {
namespace {

using carole::testing::AllWeights;
using carole::testing::ConnectWalled;
using carole::testing::ErrorsOfRanks;
using carole::testing::ExpectSameBits;
using carole::testing::FormulaSource;
using carole::testing::FullCommunicator;
using carole::testing::kManySteps;
using carole::testing::kReplayedSteps;
using carole::testing::LargestDifference;
using carole::testing::MakeEarlyCopying;
using carole::testing::MakeEmulatedCuda;
using carole::testing::MakeGradientsLarge;
using carole::testing::MakeWalledOneDnn;
using carole::testing::MakeWalledReference;
using carole::testing::RankTraining;
using carole::testing::RunRanks;
using carole::testing::SmallNet;
using carole::testing::SmallStep;
using carole::testing::TrainingOutcome;
using carole::testing::WalledBackend;
using ::testing::HasSubstr;

TEST(DeviceTraining, EveryOptimizerGivesTheSameBitsAsOnTheHost) {
  for (const optim::OptimizerEntry& entry : optim::kOptimizers) {
    SCOPED_TRACE(entry.name);
    ExpectSameBits({.options = {.optimizer = std::string(entry.name),
                                .optimizer_options = {.clip_gradient_norm = 1},
                                .moving_average_decay = 0.9}});
  }
}

TEST(DeviceTraining, MicroBatchesShardsAndFrozenVariablesGiveTheSameBitsAsOnTheHost) {
  for (const bool reproducible : {false, true}) {
    ExpectSameBits(
        {.rows = 2,
         .num_samples = 32,
         .options = {
             .optimizer = "momentum", .accumulation_steps = 4, .reproducible = reproducible}});
  }
  ExpectSameBits({.options = {.optimizer = "momentum", .trainable_scopes = {"net/logits"}}});
  ExpectSameBits({.options = {.optimizer = "sgd", .local_sgd_steps = 2}});
}

// A net with dropout and batch norm. The training has a short batch and changing learning rates.
std::unique_ptr<Graph> MakeDropoutNet(int64_t rows, DType dtype) {
  SmallNet net(rows, true, dtype);
  Graph& g = *net.graph;
  const ValueId dropped = ops::Dropout(g, net.logits, {.keep = 0.7});
  g.AddLoss("dropped",
            ops::SoftmaxCrossEntropy(g, dropped, g.input("labels"), g.input("weights"), {}));
  return std::move(net.graph);
}

TEST(DeviceTraining, ReplayedStepsGiveTheSameBitsAsOnTheHost) {
  for (const char* optimizer : {"momentum", "adam", "lars"}) {
    const RankTraining training{.steps = kManySteps,
                                .options = {.optimizer = optimizer,
                                            .optimizer_options = {.clip_gradient_norm = 1},
                                            .moving_average_decay = 0.9},
                                .graph = MakeDropoutNet};
    EXPECT_EQ(ExpectSameBits(training).replays, kReplayedSteps) << optimizer;
    EXPECT_EQ(ExpectSameBits(training, MakeEarlyCopying).replays, kReplayedSteps) << optimizer;
  }
}

// The last micro-batch is not replayed in a step with fewer micro-batches.
TEST(DeviceTraining, ReplayedMicroBatchesGiveTheSameBitsAsOnTheHost) {
  RankTraining training{.rows = 2,
                        .num_samples = 32,
                        .steps = kManySteps,
                        .options = {.optimizer = "adam", .accumulation_steps = 4},
                        .graph = MakeDropoutNet};
  EXPECT_EQ(ExpectSameBits(training, MakeEarlyCopying).replays, kReplayedSteps);
  training.num_samples = 28;
  EXPECT_EQ(ExpectSameBits(training, MakeEarlyCopying).replays, kReplayedSteps - 2);
}

TEST(DeviceTraining, ReplayedCudaKernelsGiveTheSameBitsAsEagerOnes) {
  for (const int64_t micro_batches : {1, 2}) {
    RankTraining training{.steps = kManySteps,
                          .backend = MakeEmulatedCuda,
                          .options = {.optimizer = "adam", .accumulation_steps = micro_batches},
                          .graph = MakeDropoutNet};
    training.num_samples = 16 * micro_batches;
    const TrainingOutcome replayed = Train(training);
    EXPECT_EQ(replayed.replays, kReplayedSteps);
    training.options.replay = false;
    const TrainingOutcome eager = Train(training);
    EXPECT_EQ(eager.replays, 0);
    EXPECT_EQ(replayed.losses, eager.losses);
    EXPECT_EQ(replayed.weights, eager.weights);
  }
}

TEST(DeviceTraining, OneDnnLayoutsGiveTheSameBitsAsOnTheHost) {
  if (!OneDnnAvailable()) GTEST_SKIP() << "skipped: built without oneDNN";
  ExpectSameBits({.backend = MakeOneDnnBackend}, MakeWalledOneDnn);
}

TEST(DeviceTraining, CudaKernelsGiveNearlyTheSameValuesAsTheHost) {
  for (const char* optimizer : {"momentum", "lars"}) {
    RankTraining training{.options = {.optimizer = optimizer, .moving_average_decay = 0.9}};
    const TrainingOutcome host = Train(training);
    training.backend = MakeEmulatedCuda;
    const TrainingOutcome device = Train(training);
    EXPECT_LT(LargestDifference(device.losses, host.losses), 1e-5);
    EXPECT_LT(LargestDifference(device.weights, host.weights), 1e-5);
  }
}

// Trains 4 steps and saves, then resumes with new objects, as a new process would, up to step 8.
// Evaluates every two steps.
std::vector<double> TrainWithRestart(std::unique_ptr<Backend> (*make)(int), double& accuracy) {
  const TemporaryFolder folder;
  std::vector<double> weights;
  for (const int64_t steps : {4, 8}) {
    RunRanks(1, [&](FullCommunicator& c) {
      const auto backend = make(1);
      TrainStep step(SmallNet(4, true).graph, *backend, c,
                     {.optimizer = "adam", .moving_average_decay = 0.9});
      SmallNet net(4, true, DType::kF32, false);
      Inference inference(std::move(net.graph), net.logits, *backend, &step.store());
      const auto evaluate = [&]() -> std::optional<Metrics> {
        FormulaSource split({.endless = false});
        std::optional<Metrics> metrics = Evaluate(inference, split, c, c);
        accuracy += metrics->accuracy();
        return metrics;
      };
      const optim::LearningRate rate({.type = "fixed", .learning_rate = 0.01});
      const MakeBatchSource source = [](const RunState& start) {
        return std::make_unique<FormulaSource>(FormulaSource::Options{}, start);
      };
      Trainer trainer(step, c, c, rate, source,
                      {.train_dir = folder.path(),
                       .max_number_of_steps = steps,
                       .seed = 11,
                       .evaluate = evaluate,
                       .eval_every = 2,
                       .keep_best = true});
      EXPECT_EQ(trainer.Run(), ExitCode::kOk);
      weights = AllWeights(step.store());
    });
  }
  return weights;
}

TEST(DeviceTraining, RestartsAndEvaluatesAsTheHostDoes) {
  double on_host = 0, on_device = 0;
  EXPECT_EQ(TrainWithRestart(MakeWalledReference, on_device),
            TrainWithRestart(MakeReferenceBackend, on_host));
  EXPECT_EQ(on_device, on_host);
}

TEST(DeviceTraining, EvaluatesAsTheHostDoesAfterAnInterruptedEvaluation) {
  RunRanks(2, [](FullCommunicator& c) {
    const auto evaluate = [&](const Backend& backend, int stop_after) {
      SmallNet net(4, true, DType::kF32, /*training=*/false);
      Inference inference(std::move(net.graph), net.logits, backend);
      inference.store().Initialize(5);
      const auto run = [&](const std::function<bool()>& stop_requested) {
        FormulaSource split({.rank = c.rank(), .size = c.size(), .endless = false});
        return Evaluate(inference, split, c, c, stop_requested);
      };
      EXPECT_FALSE(run([&] { return stop_after-- == 0; }).has_value());
      const Metrics metrics = *run({});
      return metrics.Report({}) + std::to_string(metrics.loss());
    };
    const auto host = MakeReferenceBackend(1), device = MakeWalledReference(1);
    for (const int stop_after : {0, 1, 2})
      EXPECT_EQ(evaluate(*device, stop_after), evaluate(*host, stop_after));
  });
}

TEST(DeviceTraining, ReportsWhatFitsIntoDeviceMemory) {
  RunRanks(1, [](FullCommunicator& c) {
    WalledBackend backend(MakeReferenceBackend(1));
    backend.free_bytes = 60'000;
    EXPECT_THAT([&] { TrainStep(SmallNet(64).graph, backend, c, {.optimizer = "sgd"}); },
                ::testing::ThrowsMessage<ConfigError>(::testing::AllOf(
                    HasSubstr("[memory] a step does not fit"), HasSubstr("use \x1f$(batch_size)="),
                    HasSubstr("\x1f$(activation_memory)="))));
  });
}

TEST(DeviceTraining, WarnsIfHostMemoryIsTooSmall) {
  const auto log_with = [](size_t bytes) {
    ::testing::internal::CaptureStderr();
    RunRanks(1, [&](FullCommunicator& c) {
      const auto host = MakeReferenceBackend(1);
      TrainStep(SmallNet(64).graph, *host, c, {.host_memory_bytes = bytes, .optimizer = "sgd"});
    });
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(log_with(60'000),
              HasSubstr("the system may kill ranks, as a step needs more memory"));
  EXPECT_EQ(log_with(1 << 30), "");
}

// With 8 micro-batches, partial sums of 1, 2 and 4 micro-batches are kept until the eighth.
TEST(DeviceTraining, CountsArenasOfTheSizeOfTheWeights) {
  EXPECT_EQ(StepOptions{.optimizer = "sgd"}.CountParameterArenas(), 2);
  EXPECT_EQ((StepOptions{.optimizer = "adam", .moving_average_decay = 0.9, .accumulation_steps = 8}
                 .CountParameterArenas()),
            2 + 2 + 1 + 3);
}

// Trains with one bad batch, while steps are replayed and two steps are in flight. Returns the
// losses, the final weights and their moving averages. If the loss stays finite, the loss scale
// counts as too large; the next step was launched with the old scale. If there are several ranks,
// the last one has the bad batch.
std::vector<double> TrainPastBadBatch(std::unique_ptr<Backend> (*make)(int), float pixel,
                                      int num_ranks = 1, int micro_batches = 1) {
  constexpr int kSteps = 9, kBad = 5;
  std::vector<double> numbers;
  const auto connect = ConnectWalled(num_ranks);
  RunRanks(num_ranks, [&](FullCommunicator& c) {
    const bool overflows = std::isfinite(pixel);
    const auto rate = [&](int64_t step) {
      // At rate 0 the weights keep their special values, with which the gradients overflow.
      return overflows ? 0 : 0.01 / static_cast<double>(1 + step);
    };
    SmallStep step(c,
                   {.optimizer = overflows ? "sgd" : "adam",
                    .moving_average_decay = 0.9,
                    .accumulation_steps = micro_batches,
                    .loss_scale = {.initial = 1024, .is_dynamic = true},
                    .audit_every_n_steps = 4},
                   {.backend = make,
                    .connect_devices = connect,
                    .rows = 4 / micro_batches,
                    .batch_norm = !overflows});
    if (overflows) MakeGradientsLarge(step.store());
    const bool on_host = !step.backend->is_asynchronous();
    FormulaSource source({.rank = c.rank(),
                          .size = num_ranks,
                          .bad_batches = {kBad},
                          .bad_rank = num_ranks - 1,
                          .bad_pixel = pixel});
    int64_t updates = 0;
    std::vector<int32_t> labels;
    const auto begin = [&] {
      const io::Batch batch = *source.Next();
      labels.push_back(batch.labels[0]);
      const int64_t number = updates + step.num_in_flight();
      step.Begin(batch, {.step = number, .learning_rate = rate(number)});
    };
    for (int i = 0; i < kSteps; ++i) {
      if (step.num_in_flight() == 0) begin();
      if (labels.size() < kSteps && step.CanRunAhead()) begin();
      const bool is_alone = on_host || (updates + 1) % 4 == 0 || i + 1 == kSteps;
      EXPECT_EQ(step.num_in_flight(), is_alone ? 1 : 2) << i;
      const StepResult result = step.End();
      EXPECT_EQ(result.applied, i != kBad) << result.skip_reason;
      EXPECT_EQ(result.overflowed, i == kBad && overflows);
      EXPECT_TRUE(on_host || result.batch.labels[0] == labels[i]);
      updates += result.applied ? 1 : 0;
      if (result.applied && c.rank() == 0) numbers.push_back(result.total_loss);
    }
    EXPECT_EQ(step.loss_scale().value(), overflows ? 512 : 1024);
    EXPECT_EQ(step.loss_scale().scalars()[1].value, overflows ? kSteps - kBad - 1 : kSteps - 1);
    EXPECT_GE(step.replays(), on_host ? 0 : kSteps - StepReplay::kWarmUpRuns);
    if (c.rank() != 0) return;
    for (double w : AllWeights(step.store())) numbers.push_back(w);
    step.replica().moving_averages->Swap();
    for (double w : AllWeights(step.store())) numbers.push_back(w);
  });
  return numbers;
}

TEST(DeviceTraining, ContinuesAfterABadBatchAsTheHostDoes) {
  for (const float pixel : {INFINITY, 1e12F}) {
    const std::vector<double> host = TrainPastBadBatch(MakeReferenceBackend, pixel);
    EXPECT_EQ(TrainPastBadBatch(MakeWalledReference, pixel), host);
    EXPECT_EQ(TrainPastBadBatch(MakeEarlyCopying, pixel), host);
    for (const int micro_batches : {1, 2}) {
      EXPECT_EQ(TrainPastBadBatch(MakeEarlyCopying, pixel, 2, micro_batches),
                TrainPastBadBatch(MakeReferenceBackend, pixel, 2, micro_batches));
    }
  }
}

struct TrainerRun {
  ExitCode code = ExitCode::kOk;
  std::string error;
  std::vector<double> weights;
};

// Runs a training with checkpoints in `folder`, to step 8 if nothing stops it.
TrainerRun TrainInto(const std::string& folder, std::unique_ptr<Backend> (*make)(int),
                     TrainerOptions options, const MakeBatchSource& source) {
  TrainerRun run;
  options.train_dir = folder;
  options.max_number_of_steps = 8;
  options.seed = 11;
  run.error = ErrorsOfRanks(1, [&](FullCommunicator& c) {
    SmallStep step(c, {.optimizer = "adam"}, {.backend = make, .batch_norm = true});
    const optim::LearningRate rate(
        {.decay_factor = 0.5, .num_epochs_per_decay = 1, .num_samples = 8, .batch_size = 4});
    Trainer trainer(step, c, c, rate, source, options);
    run.code = trainer.Run();
    run.weights = AllWeights(step.store());
  })[0];
  return run;
}

// A stop request, as from a signal, ends the run after the steps in flight.
TEST(DeviceTraining, ResumesAfterAStopRequest) {
  const MakeBatchSource source = [](const RunState& start) {
    return std::make_unique<FormulaSource>(FormulaSource::Options{}, start);
  };
  const TemporaryFolder whole, parts;
  const TrainerRun want = TrainInto(whole.path(), MakeReferenceBackend, {}, source);
  TrainerOptions stopped;
  stopped.stop_requested = [asked = 0]() mutable { return ++asked > 5; };
  EXPECT_EQ(TrainInto(parts.path(), MakeEarlyCopying, stopped, source).code, ExitCode::kSaved);
  EXPECT_EQ(TrainInto(parts.path(), MakeEarlyCopying, {}, source).weights, want.weights);
}

// Batch number 5 is bad. Its step is replayed, and the next step is in flight already.
TEST(DeviceTraining, NamesAndSkipsTheStepWithNan) {
  const MakeBatchSource bad_batches = [](const RunState&) {
    return std::make_unique<FormulaSource>(
        FormulaSource::Options{.bad_batches = {5}, .bad_pixel = NAN});
  };
  std::string errors[2];
  std::vector<double> weights[2];
  for (const bool on_host : {true, false}) {
    const TemporaryFolder stops, skips;
    auto* const make = on_host ? MakeReferenceBackend : MakeEarlyCopying;
    errors[on_host] = TrainInto(stops.path(), make, {}, bad_batches).error;
    weights[on_host] = TrainInto(skips.path(), make, {.on_nan = OnNan::kSkip}, bad_batches).weights;
  }
  EXPECT_THAT(errors[true], HasSubstr("after step 5: not finite: rank 0: loss"));
  EXPECT_EQ(errors[false], errors[true]);
  EXPECT_EQ(weights[false], weights[true]);
  EXPECT_FALSE(weights[true].empty());
}

// With micro-batches, the device gets the first one of the next step before it has finished this
// step.
TEST(DeviceTraining, LaunchesAStepWhileTheDeviceRunsThePreviousOne) {
  for (const int64_t micro_batches : {1, 2}) {
    SCOPED_TRACE(micro_batches);
    RunRanks(1, [&](FullCommunicator& c) {
      SmallStep step(c, {.optimizer = "momentum", .accumulation_steps = micro_batches},
                     {.backend = MakeEarlyCopying, .rows = 4 / micro_batches, .batch_norm = true});
      FormulaSource source({.num_samples = 32});
      const auto& stream = static_cast<WalledBackend&>(*step.backend).stream();
      step.Begin(*source.Next(), {.learning_rate = 0.05});
      for (int64_t s = 1; s < kManySteps; ++s) {
        const size_t queued = stream->num_queued();
        EXPECT_GT(queued, 0) << "the host waited for a step that it has launched";
        ASSERT_TRUE(step.CanRunAhead());
        step.Begin(*source.Next(), {.step = s, .learning_rate = 0.05});
        if (micro_batches == 1) {
          EXPECT_GT(stream->num_queued(), queued) << "the host waited for the previous step";
        }
        EXPECT_FALSE(step.CanRunAhead()) << "more than two steps in flight";
        EXPECT_TRUE(step.End().applied);
        EXPECT_EQ(step.num_in_flight(), 1);
      }
      EXPECT_GT(stream->num_queued(), 0) << "the host waited for a step that it has launched";
      EXPECT_TRUE(step.End().applied);
      EXPECT_EQ(step.replays(), kReplayedSteps);
    });
  }
}

// Trains with kernels that read 16-bit copies of the weights, which the optimizer updates with the
// weights. If `casts`, the copies are made anew before each step. Step 5 is bad, and the next step
// is in flight already.
std::vector<double> TrainIn(Precision precision, StepOptions options, bool casts) {
  std::vector<double> numbers;
  RunRanks(1, [&](FullCommunicator& c) {
    options.optimizer = "momentum";
    SmallStep step(c, options,
                   {.backend = MakeEmulatedCuda,
                    .precision = precision,
                    .rows = 4 / options.accumulation_steps,
                    .batch_norm = true});
    FormulaSource source({.bad_batches = {5}});
    int64_t begun = 0;
    const auto begin = [&] {
      if (casts) (void)step.store();
      step.Begin(*source.Next(), {.step = begun++, .learning_rate = 0.05});
    };
    for (int64_t s = 0; s < kManySteps; ++s) {
      if (step.num_in_flight() == 0) begin();
      if (begun < kManySteps && step.CanRunAhead()) begin();
      const StepResult result = step.End();
      EXPECT_EQ(result.applied, s != 5);
      numbers.push_back(result.applied ? result.total_loss : 0);
    }
    for (double w : AllWeights(step.store())) numbers.push_back(w);
  });
  return numbers;
}

TEST(DeviceTraining, OptimizerUpdatesTheCopiesOfWeights) {
  for (const StepOptions& options : {StepOptions{},
                                     {.accumulation_steps = 2},
                                     {.trainable_scopes = {"net/logits"}},
                                     {.local_sgd_steps = 2}}) {
    for (const Precision precision : {Precision::kBf16, Precision::kFp16})
      EXPECT_EQ(TrainIn(precision, options, false), TrainIn(precision, options, true));
  }
}

TEST(DeviceTraining, NextStepSeesWeightsThatTheCallerChanged) {
  RunRanks(1, [](FullCommunicator& c) {
    FormulaSource source({});
    const io::Batch batch = *source.Next();
    const auto first_loss = [&](int64_t steps_before) {
      SmallStep step(
          c, {.optimizer = "sgd"},
          {.backend = MakeEmulatedCuda, .precision = Precision::kBf16, .batch_norm = true});
      step.store().Initialize(8);
      for (int64_t s = 0; s < steps_before; ++s) step.Run(batch, {.step = s, .learning_rate = 0.5});
      step.store().Initialize(7);
      const double loss = step.Run(batch, {.step = steps_before}).data_loss;
      EXPECT_EQ(step.replays() > 0, steps_before >= kManySteps);
      return loss;
    };
    const double fresh = first_loss(0);
    EXPECT_EQ(first_loss(1), fresh);
    EXPECT_EQ(first_loss(kManySteps), fresh);
  });
}

TEST(DeviceTraining, NoStepIsLaunchedBeforeAnAudit) {
  RunRanks(1, [](FullCommunicator& c) {
    SmallStep step(c, {.optimizer = "momentum", .audit_every_n_steps = 2},
                   {.backend = MakeWalledReference});
    FormulaSource source({});
    step.Begin(*source.Next(), {.learning_rate = 0.05});
    EXPECT_TRUE(step.CanRunAhead());
    step.Begin(*source.Next(), {.step = 1, .learning_rate = 0.05});
    step.End();
    EXPECT_FALSE(step.CanRunAhead()) << "an audit follows";
    step.End();
  });
}

TEST(WalledBackend, HostAccessToDeviceMemoryCrashes) {
  const WalledBackend backend(MakeReferenceBackend(1));
  const DeviceMemory memory = backend.Allocate(100);
  EXPECT_DEATH(memory.get()[3] = std::byte{1}, "");
}

}  // namespace
}  // namespace carole::train
