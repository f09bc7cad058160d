// Training on a device: whatever is done on the host's memory elsewhere gives the same bits on
// memory that the host cannot touch, and nearly the same with the CUDA backend's own kernels.
#include <gmock/gmock.h>

#include <cmath>

#include "src/train/evaluate.h"
#include "src/train/trainer.h"
#include "tests/support/cuda_emulation/backend.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/walled_backend.h"
#include "tests/support/walled_sums.h"
#include "tests/train/rank_training.h"

namespace carole::train {
namespace {

using carole::testing::Communicator;
using carole::testing::ErrorsOfRanks;
using carole::testing::FormulaSource;
using carole::testing::RankTraining;
using carole::testing::RunRanks;
using carole::testing::SmallNet;
using carole::testing::TrainingOutcome;
using carole::testing::WalledBackend;
using ::testing::HasSubstr;

std::unique_ptr<Backend> MakeWalledReference(int threads) {
  return std::make_unique<WalledBackend>(MakeReferenceBackend(threads));
}
std::unique_ptr<Backend> MakeWalledOneDnn(int threads) {
  return std::make_unique<WalledBackend>(MakeOneDnnBackend(threads));
}
std::unique_ptr<Backend> MakeEmulatedCuda(int threads) {
  return std::make_unique<WalledBackend>(
      carole::testing::MakeEmulatedCudaBackend(MakeReferenceBackend(threads)));
}

// As on the backend that the training is for.
void ExpectSameBits(RankTraining training,
                    std::unique_ptr<Backend> (*make_device)(int threads) = MakeWalledReference) {
  const TrainingOutcome host = Train(training);
  training.backend = make_device;
  const TrainingOutcome device = Train(training);
  EXPECT_EQ(device.losses, host.losses);
  EXPECT_EQ(device.weights, host.weights);
}

TEST(DeviceTraining, EveryOptimizerGivesTheHostsBits) {
  for (const optim::OptimizerEntry& entry : optim::kOptimizers) {
    SCOPED_TRACE(entry.name);
    ExpectSameBits({.options = {.optimizer = std::string(entry.name),
                                .optimizer_options = {.clip_gradient_norm = 1},
                                .moving_average_decay = 0.9}});
  }
}

TEST(DeviceTraining, SoDoMicroBatchesShardsAndFrozenVariables) {
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

TEST(DeviceTraining, OneDnnsLayoutsToo) {
  if (!OneDnnAvailable()) GTEST_SKIP() << "skipped: built without oneDNN";
  ExpectSameBits({.backend = MakeOneDnnBackend}, MakeWalledOneDnn);
}

TEST(DeviceTraining, CudasOwnKernelsStayClose) {
  for (const char* optimizer : {"momentum", "lars"}) {
    RankTraining training{.options = {.optimizer = optimizer, .moving_average_decay = 0.9}};
    const TrainingOutcome host = Train(training);
    training.backend = MakeEmulatedCuda;
    const TrainingOutcome device = Train(training);
    EXPECT_LT(carole::testing::LargestDifference(device.losses, host.losses), 1e-5);
    EXPECT_LT(carole::testing::LargestDifference(device.weights, host.weights), 1e-5);
  }
}

TEST(DeviceTraining, StepThatIsNotFiniteLeavesEverythingAsItWas) {
  RunRanks(1, [](Communicator& c) {
    const auto backend = MakeEmulatedCuda(1);
    TrainStep step(SmallNet(4, true).graph, *backend, c,
                   {.optimizer = "momentum", .moving_average_decay = 0.9});
    step.store().Initialize(7);
    FormulaSource source({});
    io::Batch batch = *source.Next();
    std::vector<float> images(batch.images.begin(), batch.images.end());
    images[5] = INFINITY;
    const io::Batch good = batch;
    batch.images = images;
    const std::vector<double> before = carole::testing::AllWeights(step.store());
    const StepResult bad = step.Run(batch, {.learning_rate = 0.05});
    EXPECT_FALSE(bad.applied);
    EXPECT_THAT(bad.blame, HasSubstr("rank 0: loss"));
    EXPECT_EQ(carole::testing::AllWeights(step.store()), before);
    EXPECT_TRUE(step.Run(good, {.learning_rate = 0.05}).applied);
    EXPECT_NE(carole::testing::AllWeights(step.store()), before);
  });
}

// Trains 4 steps, saves, and goes on to 8 with a new process's objects, evaluating on the way.
std::vector<double> TrainWithRestart(std::unique_ptr<Backend> (*make)(int), double& accuracy) {
  const TemporaryFolder folder;
  std::vector<double> weights;
  for (const int64_t steps : {4, 8}) {
    RunRanks(1, [&](Communicator& c) {
      const auto backend = make(1);
      TrainStep step(SmallNet(4, true).graph, *backend, c,
                     {.optimizer = "adam", .moving_average_decay = 0.9});
      SmallNet net(4, true, DType::kF32, false);
      Evaluator evaluator(std::move(net.graph), net.logits, *backend, &step.store());
      const auto evaluate = [&]() -> std::optional<Metrics> {
        FormulaSource split({.endless = false});
        std::optional<Metrics> metrics = evaluator.Run(split, c);
        accuracy += metrics->accuracy();
        return metrics;
      };
      const optim::LearningRate rate({.type = "fixed", .learning_rate = 0.01});
      const MakeBatchSource source = [](const RunState& start) {
        return std::make_unique<FormulaSource>(FormulaSource::Options{}, start);
      };
      Trainer trainer(step, c, rate, source,
                      {.train_dir = folder.path(),
                       .max_number_of_steps = steps,
                       .seed = 11,
                       .evaluate = evaluate,
                       .eval_every = 2,
                       .keep_best = true});
      EXPECT_EQ(trainer.Run(), ExitCode::kOk);
      weights = carole::testing::AllWeights(step.store());
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

TEST(DeviceTraining, SaysWhatFitsIntoItsMemory) {
  RunRanks(1, [](Communicator& c) {
    WalledBackend backend(MakeReferenceBackend(1));
    backend.free_bytes = 60'000;
    EXPECT_THAT([&] { TrainStep(SmallNet(64).graph, backend, c, {.optimizer = "sgd"}); },
                ::testing::ThrowsMessage<ConfigError>(::testing::AllOf(
                    HasSubstr("[memory] a step does not fit"), HasSubstr("use --batch_size="),
                    HasSubstr("--activation_memory="))));
  });
}

// With two ranks each sum is of two numbers, so that its order does not matter.
TEST(DeviceTraining, SeveralRanksGiveTheHostsBits) {
  for (const bool local_sgd : {false, true}) {
    RankTraining training{.num_ranks = 2,
                          .rows = 4,
                          .options = {.optimizer = "momentum",
                                      .optimizer_options = {.clip_gradient_norm = 1},
                                      .moving_average_decay = 0.9,
                                      .accumulation_steps = 2,
                                      .local_sgd_steps = local_sgd ? 2 : 0,
                                      .audit_every_n_steps = 2}};
    const TrainingOutcome host = Train(training);
    training.backend = MakeWalledReference;
    training.connect_devices = carole::testing::ConnectWalled(2);
    const TrainingOutcome device = Train(training);
    EXPECT_EQ(device.losses, host.losses) << local_sgd;
    EXPECT_EQ(device.weights, host.weights) << local_sgd;
  }
}

TEST(DeviceTraining, AllRanksLeaveAStepOfWhichOneIsNotFinite) {
  const auto connect = carole::testing::ConnectWalled(3);
  RunRanks(3, [&](Communicator& c) {
    const auto backend = MakeWalledReference(1);
    TrainStep step(SmallNet(4, true).graph, *backend, c,
                   {.optimizer = "momentum", .connect_devices = [&] { connect(c, *backend); }});
    step.store().Initialize(7);
    FormulaSource source({.rank = c.rank(), .size = 3});
    io::Batch batch = *source.Next();
    std::vector<float> images(batch.images.begin(), batch.images.end());
    if (c.rank() == 1) images[5] = INFINITY;
    batch.images = images;
    const std::vector<double> before = carole::testing::AllWeights(step.store());
    const StepResult result = step.Run(batch, {.learning_rate = 0.05});
    EXPECT_FALSE(result.applied);
    EXPECT_THAT(result.blame, ::testing::StartsWith("rank 1: loss"));
    EXPECT_EQ(carole::testing::AllWeights(step.store()), before);
  });
}

TEST(DeviceTraining, SumsThatNeedTheHostAreRefused) {
  const auto errors = ErrorsOfRanks(2, [](Communicator& c) {
    const auto backend = MakeWalledReference(1);
    TrainStep(SmallNet(4).graph, *backend, c, {.optimizer = "sgd", .reproducible = true});
  });
  for (const std::string& error : errors)
    EXPECT_THAT(error, HasSubstr("got --reproducible or --reduction with 2 ranks"));
}

TEST(WalledBackend, NobodyElseTouchesItsMemory) {
  const WalledBackend backend(MakeReferenceBackend(1));
  const DeviceMemory memory = backend.Allocate(100);
  EXPECT_DEATH(memory.get()[3] = std::byte{1}, "");
}

}  // namespace
}  // namespace carole::train
