// Tests several ranks that each have a device, compared with as many ranks on the host.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>

#include "collectives/ranks/replica_check.h"
#include "src/train/integrity/replica_audit.h"
#include "tests/support/text_of.h"
#include "tests/train/step/device_training.h"

namespace carole::train {
namespace {

using carole::testing::AllWeights;
using carole::testing::ConnectWalled;
using carole::testing::ExpectSameBits;
using carole::testing::FormulaSource;
using carole::testing::FullCommunicator;
using carole::testing::kManySteps;
using carole::testing::kReplayedSteps;
using carole::testing::LargestDifference;
using carole::testing::MakeEmulatedCuda;
using carole::testing::MakeGradientsLarge;
using carole::testing::MakeWalledReference;
using carole::testing::RankTraining;
using carole::testing::RunRanks;
using carole::testing::SmallStep;
using carole::testing::TrainingOutcome;
using ::testing::StartsWith;

// With two ranks, each reduction adds two numbers, so the order does not matter.
TEST(DeviceRanks, TwoRanksGiveTheSameBitsAsOnTheHost) {
  struct Case {
    const char* what;
    StepOptions options;
    int64_t replays = kReplayedSteps;
    int64_t num_samples = 32;
  };
  for (const Case& c :
       {Case{"plain", {}},
        {"micro-batches", {.accumulation_steps = 2}},
        {"micro-batches; every second step has only one", {.accumulation_steps = 2}, 1, 20},
        {"reproducible", {.accumulation_steps = 2, .reproducible = true}},
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

// Four ranks. NCCL has no Adasum.
TEST(DeviceRanks, AdasumThroughTheHostGivesTheSameBitsAsOnTheHost) {
  const RankTraining training{.num_ranks = 4,
                              .rows = 2,
                              .steps = kManySteps,
                              .options = {.optimizer = "momentum",
                                          .optimizer_options = {.clip_gradient_norm = 1},
                                          .reduction = collectives::Reduction::kAdasum,
                                          .audit_every_n_steps = 2}};
  EXPECT_EQ(ExpectSameBits(training).replays, 0);
}

// The audits show that all ranks have the same weights.
TEST(DeviceRanks, GradientsThatTravelAsBf16TrainAlike) {
  TrainingOutcome outcomes[2];
  for (const bool rounds : {false, true}) {
    outcomes[rounds] =
        carole::testing::Train({.num_ranks = 3,
                                .rows = 4,
                                .num_samples = 96,
                                .steps = kManySteps,
                                .backend = MakeEmulatedCuda,
                                .options = {.optimizer = "momentum", .audit_every_n_steps = 2},
                                .connect_devices = ConnectWalled(3),
                                .communicator = {.wire_dtype = rounds ? DType::kBF16 : DType::kF32},
                                .run_ahead = true});
    EXPECT_EQ(outcomes[rounds].replays, kReplayedSteps);
  }
  EXPECT_NE(outcomes[true].weights, outcomes[false].weights);
  EXPECT_LT(LargestDifference(outcomes[true].losses, outcomes[false].losses), 1e-2);
}

// With replay and without it. The reference is one rank on the host with the whole batch.
TEST(DeviceRanks, SyncBatchNormComputesTheSameAsOneRank) {
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
        .run_ahead = true};
    const TrainingOutcome parts = Train(many);
    EXPECT_LT(LargestDifference(parts.losses, whole.losses), 2e-5) << num_ranks;
    EXPECT_LT(LargestDifference(parts.weights, whole.weights), 2e-5) << num_ranks;
    EXPECT_EQ(parts.replays, replay ? kReplayedSteps : 0);
  }
}

// With SyncBN, ranks communicate in each micro-batch, not only in the last one.
TEST(DeviceRanks, SyncBatchNormInMicroBatchesCanBeReplayed) {
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
                                               .run_ahead = true});
    EXPECT_EQ(outcomes[replay].replays, replay ? kReplayedSteps : 0);
  }
  EXPECT_EQ(outcomes[true].losses, outcomes[false].losses);
  EXPECT_EQ(outcomes[true].weights, outcomes[false].weights);
}

// Losses and statistics are final when backward begins, so backward hides their reductions.
TEST(DeviceRanks, SmallReductionsStartBeforeThoseOfGradients) {
  for (auto* const make : {MakeReferenceBackend, MakeEmulatedCuda}) {
    SCOPED_TRACE(make(1)->name());
    const auto connect = ConnectWalled(2);
    RunRanks(2, [&](FullCommunicator& c) {
      SmallStep step(c, {.optimizer = "sgd", .buckets = {.first_bucket_bytes = 4}},
                     {.backend = make, .connect_devices = connect, .batch_norm = true});
      FormulaSource source({.rank = c.rank(), .size = 2});
      step.Run(*source.Next(), {.learning_rate = 0.05});  // the first step has more operations
      std::vector<std::string> reductions;
      c.SetObserver([&](const collectives::CollectiveRecord& record) {
        if (record.operation == collectives::Operation::kAllReduce)
          reductions.push_back(fmt::format("{} {}", record.what, record.bucket));
      });
      step.Run(*source.Next(), {.step = 1, .learning_rate = 0.05});
      c.SetObserver({});
      std::vector<std::string> want{"losses 0", "statistics 0", "gradients 0", "gradients 1"};
      if (make == MakeEmulatedCuda) {
        want[0] = "losses on devices 0";
        want.push_back("losses 0");  // for the host
      }
      EXPECT_EQ(reductions, want);
    });
  }
}

// Only rank 0 writes histograms.
TEST(DeviceRanks, OneRankMayHaveObservers) {
  const auto connect = ConnectWalled(2);
  RunRanks(2, [&](FullCommunicator& c) {
    SmallStep step(
        c, {.optimizer = "momentum"},
        {.backend = MakeWalledReference, .connect_devices = connect, .batch_norm = true});
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

// Uses the hash kernels of the CUDA backend, and copies to and from its memory.
TEST(DeviceRanks, AuditRepairsARankThatDiffers) {
  const auto connect = ConnectWalled(3);
  RunRanks(3, [&](FullCommunicator& c) {
    SmallStep step(c, {.optimizer = "momentum"},
                   {.backend = MakeEmulatedCuda, .connect_devices = connect, .batch_norm = true});
    VariableStore& store = step.store();
    RankFaults faults;
    ReplicaAudit audit(c, step.replica(), {}, faults);
    EXPECT_FALSE(audit.Run(1));
    const std::vector<double> before = AllWeights(store);
    std::vector<float> values(static_cast<size_t>(store.variables()[0].tf_shape.size()));
    store.Read(0, values);
    values.back() = std::nextafter(values.back(), 2.0F);
    if (c.rank() == 1) store.Write(0, values);
    EXPECT_TRUE(audit.Run(2));
    EXPECT_EQ(AllWeights(store), before);
    if (c.rank() == 1) store.Write(0, values);
    EXPECT_THAT(
        TextOf<collectives::ReplicaError>([&] { audit.Run(3); }),
        ::testing::AllOf(::testing::HasSubstr("[audit] " + store.variables()[0].name + ": "),
                         ::testing::HasSubstr("rank 1 (")));
  });
}

// Returns everything that a checkpoint would store.
std::vector<std::vector<float>> SavedValues(TrainStep& step) {
  const io::Checkpoint checkpoint = MakeSnapshot(step.replica(), {}, {});
  std::vector<std::vector<float>> kept;
  for (const auto* variables : {&checkpoint.variables, &checkpoint.slots}) {
    for (const io::CheckpointVariable& v : *variables) kept.push_back(v.data);
  }
  return kept;
}

// Also if only one of three ranks has a bad batch, and if gradients travel as bf16. The next step
// works as usual.
TEST(DeviceRanks, AStepThatIsNotFiniteChangesNothing) {
  struct Case {
    std::unique_ptr<Backend> (*make)(int threads);
    DType wire = DType::kF32;
  };
  for (const Case& tested : {Case{MakeReferenceBackend},
                             {MakeWalledReference},
                             {MakeEmulatedCuda},
                             {MakeEmulatedCuda, DType::kBF16}}) {
    for (const int num_ranks : {1, 3}) {
      SCOPED_TRACE(
          fmt::format("{} on {}, {}", tested.make(1)->name(), num_ranks, Name(tested.wire)));
      const int bad_rank = num_ranks / 2;
      const auto connect = ConnectWalled(num_ranks);
      const auto work = [&](FullCommunicator& c) {
        SmallStep step(c, {.optimizer = "adam", .moving_average_decay = 0.9},
                       {.backend = tested.make, .connect_devices = connect, .batch_norm = true});
        step.replica().moving_averages->Reset();
        FormulaSource source(
            {.rank = c.rank(), .size = num_ranks, .bad_batches = {1}, .bad_rank = bad_rank});
        const auto run = [&] { return step.Run(*source.Next(), {.learning_rate = 0.05}); };
        EXPECT_TRUE(run().applied);
        const auto before = SavedValues(step);
        EXPECT_EQ(before.size(), 6 + 2 * 4 + 2 + 6U)
            << "variables, moments, powers, moving averages";
        const StepResult bad = run();
        EXPECT_FALSE(bad.applied);
        EXPECT_THAT(bad.skip_reason, StartsWith(fmt::format("rank {}: loss", bad_rank)));
        EXPECT_EQ(bad.skip_reason.find("rank", 1), std::string::npos) << bad.skip_reason;
        EXPECT_EQ(SavedValues(step), before);
        EXPECT_TRUE(run().applied);
        EXPECT_NE(SavedValues(step), before);
      };
      RunRanks(num_ranks, work, {.wire_dtype = tested.wire});
    }
  }
}

// In local SGD, only one of the ranks sees the bad gradient. All of them skip the step.
TEST(DeviceRanks, InLocalSgdRanksVoteWhetherAStepIsFinite) {
  for (auto* const make : {MakeReferenceBackend, MakeWalledReference, MakeEmulatedCuda}) {
    SCOPED_TRACE(make(1)->name());
    const auto connect = ConnectWalled(2);
    RunRanks(2, [&](FullCommunicator& c) {
      SmallStep step(c, {.optimizer = "sgd", .local_sgd_steps = 2},
                     {.backend = make, .connect_devices = connect});
      MakeGradientsLarge(step.store());
      const auto before = AllWeights(step.store());
      FormulaSource source(
          {.rank = c.rank(), .size = 2, .bad_batches = {0}, .bad_rank = 1, .bad_pixel = 1e12F});
      const StepResult result = step.Run(*source.Next(), {.learning_rate = 0.05});
      EXPECT_TRUE(std::isfinite(result.data_loss));
      EXPECT_FALSE(result.applied);
      EXPECT_EQ(result.skip_reason, "rank 1: gradient of net/conv/weights");
      EXPECT_EQ(AllWeights(step.store()), before);
      EXPECT_TRUE(step.Run(*source.Next(), {.learning_rate = 1e-30}).applied);
      EXPECT_NE(AllWeights(step.store()), before);
    });
  }
}

}  // namespace
}  // namespace carole::train
