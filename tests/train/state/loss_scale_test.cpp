#include "src/train/state/loss_scale.h"

#include <gmock/gmock.h>

#include <cmath>

#include "src/core/error.h"
#include "tests/support/walled_cuda.h"
#include "tests/train/rank_training.h"

namespace carole::train {
namespace {

using carole::testing::AllWeights;
using carole::testing::FormulaSource;
using carole::testing::FullCommunicator;
using carole::testing::RankTraining;
using carole::testing::RunRanks;
using carole::testing::SmallStep;
using carole::testing::SmallStepOptions;
using carole::testing::Train;
using carole::testing::TrainingOutcome;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(LossScaleTest, ParsesTheFlag) {
  EXPECT_EQ(ParseLossScale("auto", Precision::kBf16).initial, 1);
  EXPECT_FALSE(ParseLossScale("auto", Precision::kBf16).is_dynamic);
  EXPECT_TRUE(ParseLossScale("auto", Precision::kFp16).is_dynamic);
  EXPECT_TRUE(ParseLossScale("dynamic", Precision::kFp32).is_dynamic);
  EXPECT_EQ(ParseLossScale("1024", Precision::kFp16).initial, 1024);
  EXPECT_FALSE(ParseLossScale("1024", Precision::kFp16).is_dynamic);
  for (const char* bad : {"", "1000", "0", "-2", "0.5", "1e30", "inf", "nan", "8x", "high"}) {
    EXPECT_THAT([&] { ParseLossScale(bad, Precision::kFp32); },
                ThrowsMessage<UsageError>(HasSubstr("[train] \x1f$(loss_scale): got ")))
        << bad;
  }
}

TEST(LossScaleTest, HalvesOnOverflowAndDoublesAfterGoodSteps) {
  LossScale scale({.initial = 4, .is_dynamic = true});
  EXPECT_TRUE(scale.RecordOverflow());
  EXPECT_EQ(scale.value(), 2);
  for (int64_t i = 1; i < LossScale::kGrowthInterval; ++i) scale.RecordGoodStep();
  EXPECT_EQ(scale.value(), 2);
  scale.RecordGoodStep();
  EXPECT_EQ(scale.value(), 4);
  EXPECT_TRUE(scale.RecordOverflow());
  EXPECT_TRUE(scale.RecordOverflow());
  EXPECT_FALSE(scale.RecordOverflow()) << "a scale of 1 is not the cause";
  EXPECT_EQ(scale.value(), 1);
  LossScale largest({.initial = LossScale::kMaxScale, .is_dynamic = true});
  for (int64_t i = 0; i < LossScale::kGrowthInterval; ++i) largest.RecordGoodStep();
  EXPECT_EQ(largest.value(), LossScale::kMaxScale)
      << "a checkpoint with a larger scale would be rejected";
  LossScale fixed({.initial = 8});
  EXPECT_FALSE(fixed.RecordOverflow());
  EXPECT_EQ(fixed.value(), 8);
  EXPECT_TRUE(fixed.scalars().empty());
}

TEST(LossScaleTest, RejectsInvalidState) {
  LossScale scale({.initial = 4, .is_dynamic = true});
  EXPECT_THAT(
      [&] { scale.SetScalar("loss_scale", 3); },
      ThrowsMessage<DataError>(HasSubstr("loss_scale: invalid value in the checkpoint: got 3")));
  EXPECT_THROW(scale.SetScalar("loss_scale", std::nan("")), DataError);
  EXPECT_THROW(scale.SetScalar("loss_scale_good_steps", -1), DataError);
}

// A power of two changes no digits, with any optimizer and with clipping.
TEST(LossScaleTest, AFixedScaleChangesNoBits) {
  for (const char* optimizer : {"momentum", "rmsprop", "lars"}) {
    SCOPED_TRACE(optimizer);
    RankTraining t{.num_ranks = 2, .rows = 4};
    t.options.optimizer = optimizer;
    t.options.optimizer_options.weight_decay = 1e-3;
    t.options.optimizer_options.clip_gradient_norm = 0.5;
    const TrainingOutcome plain = Train(t);
    t.options.loss_scale.initial = 4096;
    const TrainingOutcome scaled = Train(t);
    EXPECT_EQ(plain.losses, scaled.losses);
    EXPECT_EQ(plain.weights, scaled.weights);
  }
}

// The largest fp16 number is 65504. So the first steps overflow, which changes only the scale.
void ExpectToFindScale(int num_ranks, std::unique_ptr<Backend> (*make)(int threads)) {
  RunRanks(num_ranks, [&](FullCommunicator& c) {
    const StepOptions options{.optimizer = "momentum",
                              .loss_scale = {.initial = 0x1p24, .is_dynamic = true}};
    const SmallStepOptions in_fp16{
        .backend = make, .precision = Precision::kFp16, .batch_norm = true};
    SmallStep step(c, options, in_fp16);
    FormulaSource source({.num_samples = 8, .rank = c.rank(), .size = c.size()});
    const io::Batch& batch = *source.Next();
    const std::vector<double> fresh = AllWeights(step.store());
    int overflows = 0;
    double first = 0, last = 0;
    for (int64_t s = 0; s < 40;) {
      const StepResult result = step.Run(batch, {.step = s, .learning_rate = 0.05});
      if (result.overflowed) {
        EXPECT_FALSE(result.applied);
        EXPECT_EQ(AllWeights(step.store()), fresh);
        EXPECT_EQ(step.loss_scale().value(), std::ldexp(1.0, 24 - ++overflows));
        ASSERT_EQ(s, 0) << "a step overflowed after the scale was found";
        continue;
      }
      ASSERT_TRUE(result.applied) << result.skip_reason;
      last = result.data_loss;
      if (s++ == 0) first = last;
    }
    EXPECT_GE(overflows, 3);
    EXPECT_GT(first, 2.0);
    EXPECT_LT(last, 0.2) << "the net did not learn";

    // The scale is part of a checkpoint; a run with a fixed scale ignores it.
    const io::Checkpoint saved = MakeSnapshot(step.replica(), {.step = 40}, {});
    SmallStep resumed(c, options, in_fp16);
    Restore(saved, "saved", resumed.replica());
    EXPECT_EQ(resumed.loss_scale().value(), step.loss_scale().value());
    EXPECT_EQ(resumed.loss_scale().scalars()[1].value, 40);
    SmallStep fixed(c, {.optimizer = "momentum"}, in_fp16);
    Restore(saved, "saved", fixed.replica());
    EXPECT_EQ(fixed.loss_scale().value(), 1);
  });
}

TEST(LossScaleTest, ADynamicScaleAdaptsToFp16) { ExpectToFindScale(2, MakeReferenceBackend); }

// The kernels of the CUDA backend decide on the device whether a step is finite.
TEST(LossScaleTest, ADynamicScaleAdaptsOnADevice) {
  ExpectToFindScale(1, [](int) -> std::unique_ptr<Backend> {
    return std::make_unique<carole::testing::WalledCuda>();
  });
}

// A smaller scale cannot repair a NaN loss. The step is reported as not finite, and the scale
// stays.
TEST(LossScaleTest, ANanLossIsNotAnOverflow) {
  RunRanks(1, [](FullCommunicator& c) {
    SmallStep step(c, {.optimizer = "sgd", .loss_scale = {.initial = 4, .is_dynamic = true}});
    FormulaSource source({.bad_batches = {0}, .bad_pixel = NAN});
    const StepResult result = step.Run(*source.Next(), {.learning_rate = 0.05});
    EXPECT_FALSE(result.applied || result.overflowed) << "the loss itself is NaN";
    EXPECT_THAT(result.skip_reason, HasSubstr("loss nan"));
    EXPECT_EQ(step.loss_scale().value(), 4);
  });
}

}  // namespace
}  // namespace carole::train
