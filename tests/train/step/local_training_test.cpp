// Tests Adasum and local SGD against plain loops over runs of one rank, and the averaging before a
// save.
#include <gmock/gmock.h>

#include "collectives/reducer/adasum.h"
#include "src/train/step/averaging.h"
#include "tests/train/rank_training.h"

namespace carole::train {
namespace {

using carole::testing::AllWeights;
using carole::testing::FormulaSource;
using carole::testing::FullCommunicator;
using carole::testing::LargestDifference;
using carole::testing::RankTraining;
using carole::testing::RateAt;
using carole::testing::RunRanks;
using carole::testing::SmallStep;
using carole::testing::SmallStepOptions;
using carole::testing::Train;

constexpr double kRate = 0.05;
const SmallStepOptions kWithNormInDouble{.batch_norm = true, .dtype = DType::kF64};

// Runs one rank of `size` ranks alone. It minimizes its own mean loss on its part of the batches.
class SingleRank {
 public:
  SingleRank(FullCommunicator& c, int rank, int size, const StepOptions& options,
             int64_t num_samples = 24)
      : step_(c, options, kWithNormInDouble),
        source_({.num_samples = num_samples, .rank = rank, .size = size}) {}

  void Step(int64_t s) {
    io::Batch batch = *source_.Next();
    batch.global_valid = batch.valid;
    loss_ = step_.Run(batch, {.step = s, .learning_rate = RateAt(s)}).total_loss;
  }

  double loss() const { return loss_; }
  VariableStore& store() { return step_.store(); }
  std::span<double> slot() {
    return {reinterpret_cast<double*>(step_.optimizer().slot(0)),
            static_cast<size_t>(store().trainable_count())};
  }

 private:
  SmallStep step_;
  FormulaSource source_;
  double loss_ = 0;
};

void Average(std::span<double> a, std::span<double> b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] = b[i] = (a[i] + b[i]) / 2;
}

RankTraining TwoRanks(const StepOptions& options) {
  return {.num_ranks = 2, .rows = 4, .num_samples = 24, .dtype = DType::kF64, .options = options};
}

TEST(LocalSgdTest, AveragesWeightsAndSlotsEveryFewSteps) {
  const StepOptions plain{.optimizer = "momentum", .optimizer_options = {.weight_decay = 0}};
  StepOptions local = plain;
  local.local_sgd_steps = 3;
  RankTraining t = TwoRanks(local);
  t.steps = 6;
  const auto outcome = Train(t);
  RunRanks(1, [&](FullCommunicator& c) {
    SingleRank a(c, 0, 2, plain), b(c, 1, 2, plain);
    for (int64_t s = 0; s < t.steps; ++s) {
      a.Step(s);
      b.Step(s);
      EXPECT_NEAR(outcome.losses[s], (a.loss() + b.loss()) / 2, 1e-13);
      if (s % 3 != 2) continue;
      Average(a.store().weights<double>(), b.store().weights<double>());
      Average(a.slot(), b.slot());
      Average(a.store().statistics<double>(), b.store().statistics<double>());
    }
    EXPECT_LT(LargestDifference(AllWeights(a.store()), outcome.weights), 1e-14);
  });
}

// There are 14 samples, so the second step has six: four on one rank and two on the other. Each
// rank takes the mean over its own samples; the reported loss is the mean over all six.
TEST(LocalSgdTest, InAShortBatchEachRankUsesTheMeanOfItsOwnSamples) {
  const StepOptions plain{.optimizer = "sgd", .optimizer_options = {.weight_decay = 0}};
  StepOptions local = plain;
  local.local_sgd_steps = 2;
  RankTraining t = TwoRanks(local);
  t.num_samples = 14;
  t.steps = 2;
  const auto outcome = Train(t);
  RunRanks(1, [&](FullCommunicator& c) {
    SingleRank a(c, 0, 2, plain, t.num_samples), b(c, 1, 2, plain, t.num_samples);
    for (int64_t s = 0; s < t.steps; ++s) {
      a.Step(s);
      b.Step(s);
    }
    EXPECT_NEAR(outcome.losses[1], (4 * a.loss() + 2 * b.loss()) / 6, 1e-13);
    Average(a.store().weights<double>(), b.store().weights<double>());
    Average(a.store().statistics<double>(), b.store().statistics<double>());
    EXPECT_LT(LargestDifference(AllWeights(a.store()), outcome.weights), 1e-14);
  });
}

// Covers the moving averages of the weights and those of the statistics.
TEST(LocalSgdTest, AveragesMovingAveragesOverRanks) {
  for (const size_t arena : {0, 1}) {
    std::vector<std::vector<double>> before(2), after(2);
    RunRanks(2, [&](FullCommunicator& c) {
      SmallStep step(c,
                     {.optimizer = "momentum", .moving_average_decay = 0.9, .local_sgd_steps = 10},
                     kWithNormInDouble);
      step.replica().moving_averages->Reset();
      FormulaSource source({.rank = c.rank(), .size = 2});
      for (int64_t s = 0; s < 2; ++s) step.Run(*source.Next(), {.step = s, .learning_rate = kRate});
      const std::span<std::byte> bytes = step.replica().moving_averages->shadow(arena);
      const std::span moving_averages(reinterpret_cast<double*>(bytes.data()),
                                      bytes.size() / sizeof(double));
      before[c.rank()].assign(moving_averages.begin(), moving_averages.end());
      step.AverageReplicas(2);
      after[c.rank()].assign(moving_averages.begin(), moving_averages.end());
    });
    EXPECT_GT(LargestDifference(before[0], before[1]), 1e-6) << arena;
    EXPECT_EQ(after[0], after[1]) << arena;
    for (size_t i = 0; i < before[0].size(); ++i)
      EXPECT_NEAR(after[0][i], (before[0][i] + before[1][i]) / 2, 1e-15) << arena;
  }
}

TEST(LocalSgdTest, AveragesReplicasBeforeASave) {
  std::vector<std::vector<double>> before(2), after(2);
  RunRanks(2, [&](FullCommunicator& c) {
    SmallStep step(c, {.optimizer = "momentum", .local_sgd_steps = 10}, kWithNormInDouble);
    FormulaSource source({.rank = c.rank(), .size = 2});
    for (int64_t s = 0; s < 2; ++s) step.Run(*source.Next(), {.step = s, .learning_rate = kRate});
    before[c.rank()] = AllWeights(step.store());
    step.AverageReplicas(2);
    after[c.rank()] = AllWeights(step.store());
  });
  EXPECT_GT(LargestDifference(before[0], before[1]), 1e-6);
  EXPECT_EQ(after[0], after[1]);
  for (size_t i = 0; i < before[0].size(); ++i)
    EXPECT_NEAR(after[0][i], (before[0][i] + before[1][i]) / 2, 1e-15);
}

TEST(RunningStatisticsTest, AreTheMeanOverRanksAfterEachStep) {
  std::vector<std::vector<double>> ranks(3), alone(3);
  const StepOptions still{.optimizer = "sgd", .trainable_scopes = {"net/logits"}};
  RunRanks(1, [&](FullCommunicator& c) {
    for (int r = 0; r < 3; ++r) {
      SingleRank lone(c, r, 3, still);
      lone.Step(0);
      alone[r] = AllWeights(lone.store());
    }
  });
  RunRanks(3, [&](FullCommunicator& c) {
    SmallStep step(c, still, kWithNormInDouble);
    const std::vector<double> before = AllWeights(step.store());
    FormulaSource source({.num_samples = 24, .rank = c.rank(), .size = 3});
    step.Run(*source.Next(), {.learning_rate = kRate});
    ranks[c.rank()] = AllWeights(step.store());
    for (size_t i = 0; i < 120; ++i) ASSERT_EQ(ranks[c.rank()][i], before[i]);  // frozen
  });
  EXPECT_EQ(ranks[0], ranks[1]);
  EXPECT_EQ(ranks[0], ranks[2]);
  for (size_t i = 120; i < 144; ++i)
    EXPECT_NEAR(ranks[0][i], (alone[0][i] + alone[1][i] + alone[2][i]) / 3, 1e-15);
}

// Uses plain SGD, so that the weights show the combined gradient.
TEST(AdasumTest, CombinesTheGradientsOfRanksLayerByLayer) {
  RankTraining t = TwoRanks({.optimizer = "sgd",
                             .optimizer_options = {.weight_decay = 0},
                             .reduction = collectives::Reduction::kAdasum});
  t.steps = 1;
  const auto outcome = Train(t);
  RunRanks(1, [&](FullCommunicator& c) {
    const StepOptions plain{.optimizer = "sgd", .optimizer_options = {.weight_decay = 0}};
    SingleRank a(c, 0, 2, plain), b(c, 1, 2, plain), fresh(c, 0, 2, plain);
    a.Step(0);
    b.Step(0);
    EXPECT_NEAR(outcome.losses[0], (a.loss() + b.loss()) / 2, 1e-13);
    for (const VariableSlice& p : a.store().variables()) {
      if (!p.trainable) continue;
      const auto layer = [&](SingleRank& rank) {
        return rank.store().gradients<double>().subspan(static_cast<size_t>(p.offset),
                                                        static_cast<size_t>(p.count));
      };
      collectives::AdasumPair<double>(layer(a), layer(b));
    }
    const auto weights = fresh.store().weights<double>(), g = a.store().gradients<double>();
    for (size_t i = 0; i < weights.size(); ++i) weights[i] -= kRate * g[i];
    auto expected = AllWeights(fresh.store()), got = outcome.weights;
    for (size_t i = 120; i < 144; ++i) expected[i] = got[i] = 0;  // running statistics
    EXPECT_LT(LargestDifference(expected, got), 1e-9);            // the learning rate is a float
  });
}

}  // namespace
}  // namespace carole::train
