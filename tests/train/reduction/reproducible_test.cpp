#include "src/train/reduction/reproducible.h"

#include <gmock/gmock.h>

#include <array>

#include "src/core/error.h"
#include "tests/train/rank_training.h"

namespace carole::train {
namespace {

using carole::testing::LargestDifference;
using carole::testing::RankTraining;
using carole::testing::Train;
using carole::testing::TrainingOutcome;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(SplitIntoShards, DistributesShardsToRanks) {
  EXPECT_EQ(SplitIntoShards(32, 1, 8).rows, 4);
  EXPECT_EQ(SplitIntoShards(32, 1, 8).per_rank, 8);
  EXPECT_EQ(SplitIntoShards(8, 4, 8).rows, 4);
  EXPECT_EQ(SplitIntoShards(8, 4, 8).per_rank, 2);
}

TEST(SplitIntoShards, RejectsAnUnevenSplit) {
  for (const auto& numbers : {std::array{32, 3, 8}, std::array{32, 2, 6}, std::array{32, 16, 8},
                              std::array{33, 1, 8}, std::array{1, 2, 8}, std::array{32, 1, 0}}) {
    EXPECT_THAT([&] { SplitIntoShards(numbers[0], numbers[1], numbers[2]); },
                ThrowsMessage<UsageError>(HasSubstr("\x1f$(reproducible)")));
  }
}

// Makes 8 shards of a global batch of 16. The last batch of an epoch of 44 samples is short: some
// shards have few samples and some have none.
RankTraining Reproducible(int num_ranks) {
  RankTraining t{.num_ranks = num_ranks, .num_samples = 44, .steps = 100};
  const Shards shards = SplitIntoShards(16 / num_ranks, num_ranks, 8);
  t.rows = shards.rows;
  t.options.accumulation_steps = shards.per_rank;
  t.options.reproducible = true;
  t.options.optimizer_options.weight_decay = 1e-3;
  return t;
}

TEST(ReproducibleTest, AnyNumberOfRanksGivesTheSameBits) {
  for (const auto make : {MakeReferenceBackend, MakeOneDnnBackend}) {
    if (make == MakeOneDnnBackend && !OneDnnAvailable()) continue;
    RankTraining t = Reproducible(1);
    t.backend = make;
    const TrainingOutcome one = Train(t);
    for (int num_ranks : {2, 4, 8}) {
      t = Reproducible(num_ranks);
      t.backend = make;
      const TrainingOutcome many = Train(t);
      EXPECT_EQ(one.weights, many.weights) << num_ranks << " ranks";
      EXPECT_EQ(one.losses, many.losses) << num_ranks << " ranks";
    }
  }
}

template <std::unique_ptr<Backend> (*kMake)(int)>
std::unique_ptr<Backend> MakeInBf16(int threads) {
  auto backend = kMake(threads);
  backend->SetPrecision(Precision::kBf16);
  return backend;
}

TEST(ReproducibleTest, AnyNumberOfRanksGivesTheSameBitsInBf16) {
  const TrainingOutcome fp32 = Train(Reproducible(1));
  for (const auto make : {MakeInBf16<MakeReferenceBackend>, MakeInBf16<MakeOneDnnBackend>}) {
    try {
      make(1);
    } catch (const ConfigError& error) {
      GTEST_SKIP() << "skipped: " << error.what();
    }
    RankTraining t = Reproducible(1);
    t.backend = make;
    const TrainingOutcome one = Train(t);
    EXPECT_NE(one.weights, fp32.weights) << "nothing was rounded";
    EXPECT_LT(LargestDifference(one.losses, fp32.losses), 0.05);
    t = Reproducible(4);
    t.backend = make;
    const TrainingOutcome many = Train(t);
    EXPECT_EQ(one.weights, many.weights);
    EXPECT_EQ(one.losses, many.losses);
  }
}

// Shows that the tests above can fail: gradients of whole batches differ in their last bits.
TEST(ReproducibleTest, BitsDifferWithoutShards) {
  RankTraining one = Reproducible(1), two = Reproducible(2);
  for (RankTraining* t : {&one, &two}) {
    t->options.reproducible = false;
    t->rows *= t->options.accumulation_steps;
    t->options.accumulation_steps = 1;
    t->options.sync_batch_norm = true;
  }
  EXPECT_GT(LargestDifference(Train(one).weights, Train(two).weights), 0);
}

TEST(ReproducibleTest, ShardsUpdateStatisticsFromTheSameStart) {
  // In one step, the running mean goes from 0 to (1 - decay) times the mean of the shards' means.
  // That is the mean of the whole batch.
  RankTraining shards = Reproducible(1), whole = Reproducible(1);
  shards.steps = whole.steps = 1;
  shards.dtype = whole.dtype = DType::kF64;
  whole.rows = 16;
  whole.options.accumulation_steps = 1;
  whole.options.reproducible = false;
  // AllWeights() returns 108 filter weights, 12 values of beta, 12 running means, and so on.
  const auto a = Train(shards).weights, b = Train(whole).weights;
  for (size_t i = 120; i < 132; ++i) EXPECT_NEAR(a[i], b[i], 1e-15);
}

TEST(ReproducibleTest, RejectsSyncBatchNorm) {
  const auto errors = carole::testing::ErrorsOfRanks(1, [](collectives::FullCommunicator& c) {
    const auto backend = MakeReferenceBackend(1);
    carole::testing::SmallNet net(2, true);
    const TrainStep step(std::move(net.graph), *backend, c,
                         {.sync_batch_norm = true, .reproducible = true});
  });
  EXPECT_THAT(errors[0], HasSubstr("\x1f$(sync_batch_norm)"));
}

}  // namespace
}  // namespace carole::train
