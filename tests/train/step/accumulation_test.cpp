// Tests gradient accumulation and batch norm over all ranks: they compute the same steps as one
// rank with the whole batch.
#include <gmock/gmock.h>

#include <atomic>

#include "src/train/reduction/pairwise_sum.h"
#include "src/train/step/micro_batch.h"
#include "tests/support/sketch.h"
#include "tests/train/rank_training.h"

namespace carole::train {
namespace {

using carole::testing::AllWeights;
using carole::testing::ErrorsOfRanks;
using carole::testing::FormulaSource;
using carole::testing::FullCommunicator;
using carole::testing::LargestDifference;
using carole::testing::RankTraining;
using carole::testing::RunRanks;
using carole::testing::Sketch;
using carole::testing::SmallNet;
using carole::testing::Train;
using carole::testing::TrainingOutcome;
using ::testing::HasSubstr;

void ExpectEqual(const TrainingOutcome& a, const TrainingOutcome& b, double tolerance) {
  EXPECT_LT(LargestDifference(a.losses, b.losses), tolerance);
  EXPECT_LT(LargestDifference(a.weights, b.weights), tolerance);
}

TEST(PairwiseSum, AddsInABinaryTree) {
  PairwiseSum<float> sum;
  const float big = 1 << 24;  // big + 1 is big again, big + 2 is not
  for (float value : {1.0f, 1.0f, big}) {
    std::vector<float> one = {value, 0};
    sum.Add(one);
  }
  std::vector<float> last = {1, 5};
  sum.Finish(0, std::span(last).first(1));
  sum.Finish(1, std::span(last).last(1));
  EXPECT_EQ(last, (std::vector<float>{(1 + 1) + (big + 1), 5}));
}

TEST(SliceMicroBatch, CountsItsOwnRows) {
  const std::vector<float> images = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<int32_t> labels = {0, 1, 2, 3};
  const io::Batch batch{
      .images = images, .labels = labels, .valid = 3, .global_valid = 9, .first_sample = 20};
  const io::Batch second = SliceMicroBatch(batch, 1, 2);
  EXPECT_EQ(second.images[0], 5);
  EXPECT_EQ(second.labels[0], 2);
  EXPECT_EQ(second.valid, 1);
  EXPECT_EQ(second.global_valid, 9);
  EXPECT_EQ(second.first_sample, 22);
}

// A rank with fewer valid rows computes as many micro-batches as the others.
TEST(CountMicroBatches, GivesTheSameNumberOnEveryRank) {
  const std::vector<int32_t> labels(8);
  io::Batch batch{.labels = labels, .valid = 8, .global_valid = 16};
  EXPECT_EQ(CountMicroBatches(batch, 4), 4);
  batch.global_valid = 5;  // all on the first rank
  for (int64_t valid : {5, 0}) {
    batch.valid = valid;
    EXPECT_EQ(CountMicroBatches(batch, 4), 3);
  }
  batch.max_valid = 2;  // three of the five records were skipped
  EXPECT_EQ(CountMicroBatches(batch, 4), 1);
  batch.max_valid = 0;
  EXPECT_EQ(CountMicroBatches(batch, 4), 1);
}

// The third global batch of the 22 samples is short (6 of 8 rows), so its last micro-batches are
// empty.
RankTraining WithoutBatchNorm(int num_ranks, int64_t rows, int64_t accumulation_steps) {
  RankTraining t{.num_ranks = num_ranks, .rows = rows, .dtype = DType::kF64};
  t.graph = [](int64_t n, DType dtype) { return std::move(SmallNet(n, false, dtype).graph); };
  t.options.optimizer_options.weight_decay = 1e-2;
  t.options.accumulation_steps = accumulation_steps;
  return t;
}

TEST(AccumulationTest, MicroBatchesComputeTheSameAsOneBatch) {
  const TrainingOutcome whole = Train(WithoutBatchNorm(1, 8, 1));
  ExpectEqual(whole, Train(WithoutBatchNorm(1, 2, 4)), 1e-13);
  ExpectEqual(whole, Train(WithoutBatchNorm(1, 1, 8)), 1e-13);
  ExpectEqual(whole, Train(WithoutBatchNorm(2, 2, 2)), 1e-13);
  ExpectEqual(whole, Train(WithoutBatchNorm(4, 1, 2)), 1e-13);
}

TEST(AccumulationTest, TheNumberOfMicroBatchesNeedNotBeAPowerOfTwo) {
  const TrainingOutcome whole = Train(WithoutBatchNorm(1, 6, 1));
  ExpectEqual(whole, Train(WithoutBatchNorm(1, 2, 3)), 1e-13);
  ExpectEqual(whole, Train(WithoutBatchNorm(2, 1, 3)), 1e-13);
}

TEST(AccumulationTest, DropoutDropsTheSameElements) {
  RankTraining t{.rows = 8, .steps = 2, .dtype = DType::kF64, .pixels = 28 * 28};
  t.graph = [](int64_t n, DType dtype) {
    return std::move(nets::BuildModel(nets::FindNet("lenet"),
                                      {.batch_size = n, .training = true, .compute = dtype})
                         .graph);
  };
  const TrainingOutcome whole = Train(t);
  t.rows = 2;
  t.num_ranks = t.options.accumulation_steps = 2;
  ExpectEqual(whole, Train(t), 1e-11);
}

RankTraining WithSyncBatchNorm(int num_ranks, int64_t rows) {
  RankTraining t{.num_ranks = num_ranks, .rows = rows};
  t.options.sync_batch_norm = true;
  return t;
}

TEST(SyncBatchNormTest, AnyNumberOfRanksComputesTheSameInDouble) {
  RankTraining one = WithSyncBatchNorm(1, 8);
  one.dtype = DType::kF64;
  one.options.sync_batch_norm = false;
  const TrainingOutcome whole = Train(one);
  for (int num_ranks : {2, 4, 8}) {  // with 8 ranks, two have no sample in the last batch
    RankTraining many = WithSyncBatchNorm(num_ranks, 8 / num_ranks);
    many.dtype = DType::kF64;
    ExpectEqual(whole, Train(many), 1e-13);
  }
}

TEST(SyncBatchNormTest, NormalizesOneMicroBatchOfAllRanksAtATime) {
  // Two ranks with two micro-batches each: batch norm sees one micro-batch of both ranks.
  RankTraining t = WithSyncBatchNorm(2, 2);
  t.options.accumulation_steps = 2;
  const TrainingOutcome outcome = Train(t);
  for (double weight : outcome.weights) ASSERT_TRUE(std::isfinite(weight));
  EXPECT_LT(outcome.losses.back(), 10);
}

// In some micro-batches, and in one whole batch, no rank has a valid record.
TEST(SyncBatchNormTest, StaysFiniteIfRecordsAreSkipped) {
  constexpr int64_t kValid[][2] = {{3, 1}, {4, 4}, {0, 0}};
  RunRanks(2, [&](FullCommunicator& c) {
    const auto backend = MakeReferenceBackend(1);
    TrainStep step(std::move(SmallNet(1, true).graph), *backend, c,
                   {.optimizer = "momentum", .accumulation_steps = 4, .sync_batch_norm = true});
    step.store().Initialize(7);
    FormulaSource source({.local_batch = 4, .rank = c.rank(), .size = c.size()});
    for (int64_t s = 0; s < 3; ++s) {
      io::Batch batch = *source.Next();
      batch.valid = kValid[s][c.rank()];
      batch.max_valid = kValid[s][0];
      batch.global_valid = std::max<int64_t>(1, kValid[s][0] + kValid[s][1]);
      const StepResult result = step.Run(batch, {.step = s, .seed = 3, .learning_rate = 0.05});
      EXPECT_TRUE(result.applied);
      EXPECT_EQ(result.data_loss > 0, kValid[s][0] > 0);
    }
    for (double weight : AllWeights(step.store())) ASSERT_TRUE(std::isfinite(weight));
  });
}

// A residual net whose batch norms are followed by a ReLU, by an addition, and by both.
std::unique_ptr<Graph> MakeResidual(int64_t rows, DType dtype) {
  auto graph = std::make_unique<Graph>(dtype);
  Sketch s(*graph);
  const ValueId x = graph->AddInput("images", {rows, 1, 8, 8}, dtype);
  const Conv2dAttributes same{.padding = {1, 1, 1, 1}};
  const ValueId y = s.Relu(s.BatchNorm(s.Conv(x, "root", 16, 3, same), "root_norm"));
  ValueId z = s.Relu(s.BatchNorm(s.Conv(y, "a1", 20, 3, same), "a1_norm"));
  z = s.BatchNorm(s.Conv(z, "a2", 16, 1), "a2_norm");
  z = s.Relu(s.Add(z, y));
  z = s.BatchNorm(s.Add(z, s.BatchNorm(s.Conv(z, "b", 16, 1), "b_norm")), "last_norm");
  s.Loss(s.Linear(s.Flatten(z), "head", 10));
  for (Variable& v : graph->mutable_variables()) {
    if (v.name.ends_with("weights")) v.initializer = Initializer::TruncatedNormal(0.2);
    if (v.name.ends_with("gamma")) v.initializer = Initializer::Constant(1);
  }
  return graph;
}

TEST(SyncBatchNormTest, ResidualNetOnBothBackendsInFloat) {
  for (const auto make : {MakeReferenceBackend, MakeOneDnnBackend}) {
    if (make == MakeOneDnnBackend && !OneDnnAvailable()) continue;
    RankTraining one = WithSyncBatchNorm(1, 8), two = WithSyncBatchNorm(2, 4);
    one.backend = two.backend = make;
    one.graph = two.graph = MakeResidual;
    const TrainingOutcome whole = Train(one);
    ExpectEqual(whole, Train(two), 1e-5);
    RankTraining four = two;  // one rank has no sample in the last batch
    four.num_ranks = 4;
    four.rows = 2;
    ExpectEqual(whole, Train(four), 1e-5);
    two.options.sync_batch_norm = false;  // without it, the results differ a lot
    EXPECT_GT(LargestDifference(whole.weights, Train(two).weights), 1e-2);
  }
}

// The memory budget decides which activations are recomputed, and that changes the order in which
// batch norms communicate.
TEST(SyncBatchNormTest, RejectsRanksWithDifferentRecomputation) {
  std::atomic<size_t> arena = 0;
  const auto make = [&](FullCommunicator& c, size_t activation_bytes) {
    const auto backend = MakeReferenceBackend(1);
    const TrainStep step(MakeResidual(8, DType::kF32), *backend, c,
                         {.activation_bytes = activation_bytes, .sync_batch_norm = true});
    arena = step.executable().plan().statistics.arena_bytes;
  };
  RunRanks(2, [&](FullCommunicator& c) { make(c, 0); });
  const size_t less = arena - 1;
  RunRanks(2, [&](FullCommunicator& c) { make(c, less); });
  for (const std::string& error :
       ErrorsOfRanks(2, [&](FullCommunicator& c) { make(c, c.rank() == 0 ? 0 : less); }))
    EXPECT_THAT(error, HasSubstr("\x1f$(activation_memory)"));
}

}  // namespace
}  // namespace carole::train
