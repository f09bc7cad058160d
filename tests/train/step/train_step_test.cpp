#include "src/train/step/train_step.h"

#include <gmock/gmock.h>

#include <cmath>

#include "src/core/error.h"
#include "tests/train/training.h"

namespace carole::train {
namespace {

using carole::testing::AllWeights;
using carole::testing::ErrorsOfRanks;
using carole::testing::FormulaSource;
using carole::testing::FullCommunicator;
using carole::testing::LargestDifference;
using carole::testing::MakeGradientsLarge;
using carole::testing::RunRanks;
using carole::testing::SmallStep;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr StepInput kInput{.step = 0, .seed = 3, .learning_rate = 0.05};

struct Outcome {
  std::vector<double> losses, accuracies;
  std::vector<double> weights;
};

// Trains LeNet with dropout for four steps on 22 samples; the last global batch of 8 is short.
// `mixed`: see FormulaSource.
Outcome TrainLeNet(int num_ranks, int64_t local_batch, DType dtype,
                   std::optional<float> mixed = {}) {
  Outcome outcome;
  RunRanks(num_ranks, [&](FullCommunicator& c) {
    const auto backend = MakeReferenceBackend(1);
    nets::Model model = nets::BuildModel(nets::FindNet("lenet"), {.batch_size = local_batch,
                                                                  .training = true,
                                                                  .label_smoothing = 0.1,
                                                                  .soft_labels = mixed.has_value(),
                                                                  .compute = dtype});
    TrainStep step(std::move(model.graph), *backend, c, {.optimizer = "momentum"});
    step.store().Initialize(7);
    FormulaSource source({.pixels = 28 * 28,
                          .local_batch = local_batch,
                          .rank = c.rank(),
                          .size = c.size(),
                          .mixed = mixed});
    for (int64_t s = 0; s < 4; ++s) {
      const StepResult result =
          step.Run(*source.Next(), {.step = s, .seed = 3, .learning_rate = 0.01});
      if (c.rank() != 0) continue;
      outcome.losses.push_back(result.total_loss);
      outcome.accuracies.push_back(result.accuracy);
    }
    if (c.rank() == 0) outcome.weights = AllWeights(step.store());
  });
  return outcome;
}

TEST(TrainStepTest, AnyNumberOfRanksComputesTheSameInDouble) {
  const Outcome one = TrainLeNet(1, 8, DType::kF64);
  for (int num_ranks : {2, 4}) {
    const Outcome many = TrainLeNet(num_ranks, 8 / num_ranks, DType::kF64);
    EXPECT_LT(LargestDifference(one.losses, many.losses), 1e-11);
    EXPECT_LT(LargestDifference(one.weights, many.weights), 1e-12);
  }
}

TEST(TrainStepTest, AnyNumberOfRanksComputesTheSameWithSoftLabels) {
  const Outcome one = TrainLeNet(1, 8, DType::kF64, 0.375f), hard = TrainLeNet(1, 8, DType::kF64);
  EXPECT_GT(LargestDifference(one.losses, hard.losses), 1e-3);
  for (int num_ranks : {2, 4}) {
    const Outcome many = TrainLeNet(num_ranks, 8 / num_ranks, DType::kF64, 0.375f);
    EXPECT_LT(LargestDifference(one.losses, many.losses), 1e-11);
    EXPECT_LT(LargestDifference(one.weights, many.weights), 1e-12);
    EXPECT_LT(LargestDifference(one.accuracies, many.accuracies), 1e-12);
  }
}

TEST(TrainStepTest, OneHotSoftLabelsGiveTheBitsOfLabels) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const Outcome hard = TrainLeNet(2, 4, dtype), soft = TrainLeNet(2, 4, dtype, 0.0f);
    EXPECT_EQ(hard.losses, soft.losses);
    EXPECT_EQ(hard.weights, soft.weights);
    EXPECT_EQ(hard.accuracies, soft.accuracies);
  }
}

// Labels of 0.25 for one class and 0.75 for another: the second is the prediction that counts.
TEST(TrainStepTest, AccuracyUsesTheLargestSoftLabel) {
  const Outcome hard = TrainLeNet(1, 8, DType::kF64, 0.0f);
  const Outcome other = TrainLeNet(1, 8, DType::kF64, 1.0f);
  EXPECT_NE(hard.accuracies, other.accuracies);
  EXPECT_EQ(TrainLeNet(1, 8, DType::kF64, 0.25f).accuracies[0], hard.accuracies[0]);
  EXPECT_EQ(TrainLeNet(1, 8, DType::kF64, 0.75f).accuracies[0], other.accuracies[0]);
}

TEST(TrainStepTest, TwoRanksComputeTheSameInFloat) {
  const Outcome one = TrainLeNet(1, 8, DType::kF32);
  const Outcome many = TrainLeNet(2, 4, DType::kF32);
  EXPECT_LT(LargestDifference(one.losses, many.losses), 1e-4);  // losses up to 10
  EXPECT_LT(LargestDifference(one.weights, many.weights), 1e-5);
}

TEST(TrainStepTest, OverfitsOneBatch) {
  RunRanks(2, [](FullCommunicator& c) {
    SmallStep step(c, {.optimizer = "momentum"});
    FormulaSource source({.num_samples = 8, .rank = c.rank(), .size = 2});
    const io::Batch& batch = *source.Next();
    double first = 0, last = 0;
    for (int64_t s = 0; s < 60; ++s) {
      last = step.Run(batch, {.step = s, .learning_rate = 0.05}).data_loss;
      if (s == 0) first = last;
    }
    EXPECT_GT(first, 2.0);
    EXPECT_LT(last, 0.05);
  });
}

TEST(TrainStepTest, LossesAndRequestsAreTheSameOnEveryRank) {
  RunRanks(3, [](FullCommunicator& c) {
    SmallStep step(c, {.optimizer = "sgd"});
    FormulaSource source({.rank = c.rank(), .size = 3});
    StepInput input = kInput;
    const StepResult quiet = step.Run(*source.Next(), input);
    EXPECT_FALSE(quiet.stop || quiet.save);
    input.request_stop = c.rank() == 2;
    input.request_save = c.rank() == 0;
    const StepResult result = step.Run(*source.Next(), input);
    EXPECT_TRUE(result.stop && result.save);
    EXPECT_EQ(result.losses.size(), 1u);
    EXPECT_EQ(result.data_loss, result.losses[0]);
    EXPECT_EQ(result.total_loss, result.data_loss + result.regularization_loss);
    EXPECT_GT(result.forward_ms, 0);
    EXPECT_GT(result.backward_ms, 0);
    double sum = result.total_loss;
    c.AllReduce(std::span(&sum, 1), {.what = "test"});
    EXPECT_NEAR(sum, 3 * result.total_loss, 1e-12);
  });
}

TEST(TrainStepTest, RegularizationLossUsesTheWeightsBeforeTheUpdate) {
  RunRanks(1, [](FullCommunicator& c) {
    SmallStep step(c, {.optimizer = "sgd", .optimizer_options = {.weight_decay = 0.1}},
                   {.dtype = DType::kF64});
    double squares = 0;
    for (double w : AllWeights(step.store())) squares += w * w;  // biases are 0
    FormulaSource source({});
    EXPECT_NEAR(step.Run(*source.Next(), kInput).regularization_loss, 0.05 * squares, 1e-12);
  });
}

TEST(TrainStepTest, NamesAGradientThatOverflowsThoughTheLossIsFinite) {
  RunRanks(2, [](FullCommunicator& c) {
    SmallStep step(c,
                   {.optimizer = "sgd", .buckets = {.first_bucket_bytes = 64, .bucket_bytes = 64}});
    MakeGradientsLarge(step.store());
    const auto before = AllWeights(step.store());
    FormulaSource source(
        {.rank = c.rank(), .size = 2, .bad_batches = {0}, .bad_rank = 1, .bad_pixel = 1e12F});
    const StepResult result = step.Run(*source.Next(), kInput);
    EXPECT_TRUE(std::isfinite(result.data_loss));
    EXPECT_FALSE(result.applied);
    EXPECT_EQ(result.skip_reason, "rank 1: gradient of net/conv/weights");
    EXPECT_EQ(AllWeights(step.store()), before);
  });
}

TEST(TrainStepTest, FrozenVariablesDoNotChangeButCountInTheLoss) {
  RunRanks(2, [](FullCommunicator& c) {
    auto run = [&](const std::vector<std::string>& scopes, std::vector<double>& weights) {
      SmallStep step(c,
                     {.optimizer = "momentum",
                      .optimizer_options = {.weight_decay = 0.1},
                      .trainable_scopes = scopes},
                     {.batch_norm = true});
      EXPECT_EQ(step.store().ready_order().size(), scopes.empty() ? 4U : 2U);
      FormulaSource source({.rank = c.rank(), .size = 2});
      const StepResult result = step.Run(*source.Next(), kInput);
      for (const VariableSlice& p : step.store().variables()) {
        std::vector<float> values(static_cast<size_t>(p.tf_shape.size()));
        step.store().Read(step.store().Find(p.name), values);
        weights.insert(weights.end(), values.begin(), values.end());
      }
      return result;
    };
    std::vector<double> all, some;
    const StepResult whole = run({}, all), part = run({"net/log", "net/.*/biases"}, some);
    EXPECT_EQ(whole.data_loss, part.data_loss);
    EXPECT_NEAR(whole.regularization_loss, part.regularization_loss, 1e-6);
    constexpr size_t kConv = 3 * 3 * 12, kMoving = kConv + 12;  // weights, then beta
    EXPECT_NE(std::vector(all.begin(), all.begin() + kConv),
              std::vector(some.begin(), some.begin() + kConv));
    EXPECT_EQ(std::vector(all.begin() + kMoving, all.end()),
              std::vector(some.begin() + kMoving, some.end()));
  });
}

// One of several scopes may match nothing: scripts list heads that not every net has.
TEST(TrainStepTest, RejectsScopesThatMatchNothing) {
  const auto errors = ErrorsOfRanks(1, [](FullCommunicator& c) {
    EXPECT_NO_THROW(SmallStep(c, {.trainable_scopes = {"net/logits/weights:0", "logits"}}));
    const SmallStep none(c, {.trainable_scopes = {"logits"}});
  });
  EXPECT_THAT(errors[0], HasSubstr("\x1f$(trainable_scopes)=logits: no trainable variable"));
}

TEST(TrainStepTest, NamesALabelOutOfRange) {
  const auto errors = ErrorsOfRanks(1, [](FullCommunicator& c) {
    SmallStep step(c, {.optimizer = "sgd"});
    FormulaSource source({});
    io::Batch batch = *source.Next();
    const std::vector<int32_t> labels = {1, 10, 2, 3};
    batch.labels = labels;
    step.Run(batch, kInput);
  });
  EXPECT_THAT(errors[0], HasSubstr("label out of range: got 10, want 0 to 9"));
}

TEST(TrainStepTest, NamesARankWithOtherLayouts) {
  if (!OneDnnAvailable()) GTEST_SKIP() << "skipped: built without oneDNN";
  const auto errors = ErrorsOfRanks(2, [](FullCommunicator& c) {
    const SmallStep step(c, {.optimizer = "sgd"},
                         {.backend = c.rank() == 0 ? MakeReferenceBackend : MakeOneDnnBackend});
  });
  EXPECT_THAT(errors, Each(HasSubstr("rank 1")));
}

TEST(TrainStepTest, NamesARankWithOtherWeights) {
  const auto errors = ErrorsOfRanks(3, [](FullCommunicator& c) {
    SmallStep step(c, {.optimizer = "momentum"});
    RunState state;
    step.store().Initialize(static_cast<uint64_t>(c.rank()));
    BroadcastState(c, step.replica(), state);
    VerifyWeights(c, step.store(), 0);
    if (c.rank() == 1) step.store().weights<float>()[3] += 1e-6f;
    VerifyWeights(c, step.store(), 5);
  });
  EXPECT_THAT(errors, Each(HasSubstr("weights: replicas differ at step 5: rank 1")));
}

}  // namespace
}  // namespace carole::train
