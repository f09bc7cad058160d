// Several ranks, each on a device of its own, beside as many on the host.
#include <gmock/gmock.h>

#include <cmath>

#include "src/train/replica_audit.h"
#include "tests/support/text_of.h"
#include "tests/train/device_training.h"

namespace carole::train {
namespace {

using carole::testing::AllWeights;
using carole::testing::Communicator;
using carole::testing::ConnectWalled;
using carole::testing::ExpectSameBits;
using carole::testing::FormulaSource;
using carole::testing::kManySteps;
using carole::testing::kReplayed;
using carole::testing::LargestDifference;
using carole::testing::MakeEmulatedCuda;
using carole::testing::MakeWalledReference;
using carole::testing::RankTraining;
using carole::testing::RunRanks;
using carole::testing::SmallNet;
using carole::testing::TrainingOutcome;

// body(communicator, step) on each rank: the step of a small net with first weights.
template <typename MakeBackend, typename Body>
void RunOnDevices(int num_ranks, const MakeBackend& make_backend, const Body& body) {
  const auto connect = ConnectWalled(num_ranks);
  RunRanks(num_ranks, [&](Communicator& c) {
    const auto backend = make_backend(1);
    TrainStep step(SmallNet(4, true).graph, *backend, c,
                   {.optimizer = "momentum", .connect_devices = [&] { connect(c, *backend); }});
    step.store().Initialize(7);
    body(c, step);
  });
}

// With two ranks each sum is of two numbers, so that its order does not matter.
TEST(DeviceRanks, SeveralRanksGiveTheHostsBits) {
  struct Case {
    const char* what;
    StepOptions options;
    int64_t replays = kReplayed;
    int64_t num_samples = 32;
  };
  for (const Case& c :
       {Case{"plain", {}},
        {"micro-batches", {.accumulation_steps = 2}},
        {"micro-batches, of which every second step has one", {.accumulation_steps = 2}, 1, 20},
        {"local SGD", {.accumulation_steps = 2, .local_sgd_steps = 2}, 0}}) {
    SCOPED_TRACE(c.what);
    RankTraining training{.num_ranks = 2,
                          .rows = 4,
                          .num_samples = c.num_samples,
                          .steps = kManySteps,
                          .options = c.options};
    training.options.optimizer = "momentum";
    training.options.optimizer_options = {.clip_gradient_norm = 1};
    training.options.moving_average_decay = 0.9;
    training.options.audit_every_n_steps = 2;
    EXPECT_EQ(ExpectSameBits(training).replays, c.replays);
  }
}

// Four ranks: NCCL would add in an order of its own, and knows no Adasum.
TEST(DeviceRanks, SumsThatNeedTheHostGiveItsBits) {
  const optim::OptimizerOptions clipping{.clip_gradient_norm = 1};
  const std::vector<StepOptions> ways = {{.optimizer = "momentum",
                                          .optimizer_options = clipping,
                                          .accumulation_steps = 2,
                                          .reproducible = true},
                                         {.optimizer = "momentum",
                                          .optimizer_options = clipping,
                                          .reduction = collectives::Reduction::kAdasum,
                                          .audit_every_n_steps = 2}};
  for (const StepOptions& options : ways) {
    SCOPED_TRACE(options.reproducible ? "reproducible" : "adasum");
    const RankTraining training{.num_ranks = 4, .rows = 2, .steps = kManySteps, .options = options};
    EXPECT_EQ(ExpectSameBits(training).replays, 0);
  }
}

TEST(DeviceRanks, AnyNumberOfRanksMakesTheSameBits) {
  RankTraining training{
      .rows = 2,
      .num_samples = 32,
      .steps = kManySteps,
      .backend = MakeEmulatedCuda,
      .options = {.optimizer = "momentum", .accumulation_steps = 8, .reproducible = true},
      .ahead = true};
  const TrainingOutcome one = Train(training);
  for (const int ranks : {2, 4}) {
    training.num_ranks = ranks;
    training.options.accumulation_steps = 8 / ranks;
    training.connect_devices = ConnectWalled(ranks);
    const TrainingOutcome many = Train(training);
    EXPECT_EQ(many.losses, one.losses) << ranks;
    EXPECT_EQ(many.weights, one.weights) << ranks;
  }
}

// Replayed or not; as one rank does on the host with the batch of all.
TEST(DeviceRanks, StatisticsOfAllRanksRows) {
  RankTraining one{.rows = 8, .steps = kManySteps};
  const TrainingOutcome whole = Train(one);
  for (const auto& [num_ranks, replay] : {std::pair(2, true), {4, true}, {2, false}}) {
    RankTraining many{
        .num_ranks = num_ranks,
        .rows = 8 / num_ranks,
        .steps = kManySteps,
        .backend = MakeEmulatedCuda,
        .options = {.optimizer = "momentum", .sync_batch_norm = true, .replay = replay},
        .connect_devices = ConnectWalled(num_ranks),
        .ahead = true};
    const TrainingOutcome parts = Train(many);
    EXPECT_LT(LargestDifference(parts.losses, whole.losses), 2e-5) << num_ranks;
    EXPECT_LT(LargestDifference(parts.weights, whole.weights), 2e-5) << num_ranks;
    EXPECT_EQ(parts.replays, replay ? kReplayed : 0);
  }
}

// Ranks sum in each micro-batch then, not in the last one alone.
TEST(DeviceRanks, SoAreThoseOfMicroBatches) {
  TrainingOutcome outcomes[2];
  for (const bool replay : {false, true}) {
    outcomes[replay] = carole::testing::Train({.num_ranks = 2,
                                               .rows = 4,
                                               .num_samples = 48,
                                               .steps = kManySteps,
                                               .backend = MakeEmulatedCuda,
                                               .options = {.optimizer = "momentum",
                                                           .accumulation_steps = 3,
                                                           .sync_batch_norm = true,
                                                           .replay = replay},
                                               .connect_devices = ConnectWalled(2),
                                               .ahead = true});
    EXPECT_EQ(outcomes[replay].replays, replay ? kReplayed : 0);
  }
  EXPECT_EQ(outcomes[true].losses, outcomes[false].losses);
  EXPECT_EQ(outcomes[true].weights, outcomes[false].weights);
}

// Rank 0 alone writes histograms.
TEST(DeviceRanks, OneRankMayObserveItsKernels) {
  RunOnDevices(2, MakeWalledReference, [](Communicator& c, TrainStep& step) {
    int64_t observed = 0;
    if (c.rank() == 0) step.executable().AddObserver([&](const KernelRecord&) { ++observed; });
    FormulaSource source({.rank = c.rank(), .size = 2});
    for (int64_t s = 0; s < kManySteps; ++s) {
      step.Begin(*source.Next(), {.step = s, .learning_rate = 0.05});
      EXPECT_FALSE(step.CanRunAhead());
      EXPECT_TRUE(step.End().applied);
    }
    EXPECT_EQ(observed > 0, c.rank() == 0);
    EXPECT_EQ(step.replays(), 0);
  });
}

// By the CUDA backend's hashes.
TEST(DeviceRanks, AuditNamesTheVariableAndTheRankThatDiffer) {
  RunOnDevices(3, MakeEmulatedCuda, [](Communicator& c, TrainStep& step) {
    VariableStore& store = step.store();
    EXPECT_NO_THROW(AuditReplicas(c, step.replica(), {}, 1));
    std::vector<float> values(static_cast<size_t>(store.places()[0].tf_shape.size()));
    store.Read(0, values);
    values.back() = std::nextafter(values.back(), 2.0F);
    if (c.rank() == 1) store.Write(0, values);
    EXPECT_THAT(TextOf<CommError>([&] { AuditReplicas(c, step.replica(), {}, 2); }),
                ::testing::AllOf(::testing::HasSubstr("[audit] " + store.places()[0].name + ": "),
                                 ::testing::HasSubstr("rank 1")));
  });
}

TEST(DeviceRanks, AllRanksLeaveAStepOfWhichOneIsNotFinite) {
  RunOnDevices(3, MakeWalledReference, [](Communicator& c, TrainStep& step) {
    FormulaSource source({.rank = c.rank(), .size = 3});
    io::Batch batch = *source.Next();
    std::vector<float> images(batch.images.begin(), batch.images.end());
    if (c.rank() == 1) images[5] = INFINITY;
    batch.images = images;
    const std::vector<double> before = AllWeights(step.store());
    const StepResult result = step.Run(batch, {.learning_rate = 0.05});
    EXPECT_FALSE(result.applied);
    EXPECT_THAT(result.blame, ::testing::StartsWith("rank 1: loss"));
    EXPECT_EQ(AllWeights(step.store()), before);
  });
}

}  // namespace
}  // namespace carole::train
