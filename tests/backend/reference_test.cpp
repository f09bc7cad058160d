// Checks the reference backend against numbers that were computed by hand. Elements are listed in
// the order of memory: activations NHWC, filters (R,S,C,K).
#include "tests/support/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "src/backend/ops/add.h"
#include "src/backend/ops/batch_norm.h"
#include "src/backend/ops/copies.h"
#include "src/backend/ops/dropout.h"
#include "src/backend/ops/folded_batch_norm.h"
#include "src/backend/ops/gelu.h"
#include "src/backend/ops/hard_activation.h"
#include "src/backend/ops/layer_norm.h"
#include "src/backend/ops/lrn.h"
#include "src/backend/ops/multiply.h"
#include "src/backend/ops/normalize.h"
#include "src/backend/ops/pool2d.h"
#include "src/backend/ops/relu.h"
#include "src/backend/ops/sigmoid.h"
#include "src/backend/ops/silu.h"
#include "src/backend/ops/softmax.h"
#include "src/core/rng.h"
#include "tests/support/op_runner.h"
#include "tests/support/op_specs.h"
#include "tests/support/text_of.h"

namespace carole::testing {
namespace {

using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

constexpr double kExact = 1e-14;

std::vector<Elements> Outputs(const OpSpec& spec, const std::vector<Elements>& inputs,
                              const RunContext& context = {},
                              std::vector<Elements>* state = nullptr) {
  return RunPlain(Reference(), InDouble(spec), inputs, context, state);
}

void ExpectElements(const Elements& got, const Elements& want, double tolerance = kExact) {
  EXPECT_THAT(got, Pointwise(DoubleNear(tolerance), want));
}

// x = 1..9 in 3 x 3, filter [1 2; 3 4]: 1*1 + 2*2 + 4*3 + 5*4 = 37, …
TEST(Reference, Conv2dOfOneChannel) {
  const ConvSizes sizes = Conv({1, 1, 3, 3}, 1, 2);
  const Elements x = {1, 2, 3, 4, 5, 6, 7, 8, 9}, w = {1, 2, 3, 4};
  ExpectElements(Outputs(Conv2dSpec(sizes), {x, w, {}})[0], {37, 47, 67, 77});
  // dy = 1, 0, 0, 2 puts the filter at (0,0) once and at (1,1) twice.
  ExpectElements(Outputs(Conv2dBackwardDataSpec(sizes), {{1, 0, 0, 2}, w})[0],
                 {1, 2, 0, 3, 4 + 2, 4, 0, 6, 8});
  ExpectElements(Outputs(Conv2dBackwardFilterSpec(sizes), {x, {1, 0, 0, 2}})[0],
                 {1 + 2 * 5, 2 + 2 * 6, 4 + 2 * 8, 5 + 2 * 9});
}

// TensorFlow's SAME padding at stride 2 on 4 pixels adds one zero row at the bottom and right.
TEST(Reference, Conv2dPadsBelowAndRight) {
  const ConvSizes sizes =
      Conv({1, 1, 4, 4}, 1, 3, {.stride_h = 2, .stride_w = 2, .padding = {0, 0, 1, 1}});
  const Elements x = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  ExpectElements(Outputs(Conv2dSpec(sizes), {x, Elements(9, 1.0), {}})[0],
                 {54, 3 + 4 + 7 + 8 + 11 + 12, 9 + 10 + 11 + 13 + 14 + 15, 11 + 12 + 15 + 16});
}

TEST(Reference, Conv2dBiasResidualRelu) {
  const ConvSizes sizes =
      Conv({1, 1, 1, 3}, 1, 1, {.relu = true}, {.bias = true, .residual = true});
  ExpectElements(Outputs(Conv2dSpec(sizes), {{1, 2, 3}, {10}, {5}, {100, -30, 0.5}})[0],
                 {115, 0, 35.5});
}

// One pixel, 2 -> 3 channels, bias and ReLU: [1 2] [1 2 3; 4 5 6] = [9 12 15].
TEST(Reference, Conv2dChannelsBiasRelu) {
  const ConvSizes sizes = Conv({1, 2, 1, 1}, 3, 1, {.relu = true}, {.bias = true});
  ExpectElements(Outputs(Conv2dSpec(sizes), {{1, 2}, {1, 2, 3, 4, 5, 6}, {0.5, -20, 1}})[0],
                 {9.5, 0, 16});
}

// Group 0: channel 0 -> outputs 0 and 1; group 1: channel 1 -> outputs 2 and 3.
TEST(Reference, DepthwiseWithMultiplier) {
  const ConvSizes sizes = Conv({1, 2, 1, 2}, 4, 1, {.groups = 2});
  ExpectElements(Outputs(Conv2dSpec(sizes), {{1, 2, 3, 4}, {1, 10, 100, 1000}, {}})[0],
                 {1, 10, 200, 2000, 3, 30, 400, 4000});
}

TEST(Reference, GroupsUseOnlyTheirChannels) {
  const ConvSizes sizes = Conv({1, 4, 1, 1}, 2, 1, {.groups = 2});
  // filter (R,S,C/groups,K): rows are c within the group, columns k.
  ExpectElements(Outputs(Conv2dSpec(sizes), {{1, 2, 3, 4}, {10, 1000, 20, 2000}, {}})[0],
                 {1 * 10 + 2 * 20, 3 * 1000 + 4 * 2000});
}

TEST(Reference, Linear) {
  const LinearSizes sizes{.n = 2, .c = 2, .k = 3, .bias = true};
  const Elements x = {1, 2, 3, 4}, w = {1, 2, 3, 4, 5, 6}, dy = {1, 0, 2, 0, 1, 0};
  ExpectElements(Outputs(LinearSpec(sizes), {x, w, {0, 1, 2}})[0], {9, 13, 17, 19, 27, 35});
  ExpectElements(Outputs(LinearBackwardDataSpec(sizes), {dy, w})[0], {7, 16, 2, 5});
  const auto gradients = Outputs(LinearBackwardFilterSpec(sizes), {x, dy});
  ExpectElements(gradients[0], {1, 3, 2, 2, 4, 4});
  ExpectElements(gradients[1], {1, 1, 2});
}

// x = 1, 3 | 5, 7: mean 4, variance 5, unbiased 20/3; epsilon makes rstd 1/3.
TEST(Reference, BatchNormTraining) {
  const BatchNormSizes sizes{.x = {2, 1, 1, 2}, .attributes = {.epsilon = 4, .decay = 0.9}};
  std::vector<Elements> state;
  const auto out =
      Outputs(BatchNormSpec(sizes), {{1, 3, 5, 7}, {3}, {10}, {}, {2}, {1}}, {}, &state);
  ExpectElements(out[0], {7, 9, 11, 13});
  ExpectElements(out[1], {4});
  ExpectElements(out[2], {1.0 / 3});
  ExpectElements(state[kPosition<BatchNormInputs>.moving_mean], {2 + 0.1 * 2});
  ExpectElements(state[kPosition<BatchNormInputs>.moving_variance], {1 + 0.1 * (20.0 / 3 - 1)});
}

// Row 1 is not valid. Mean 2 and variance 1 are those of row 0, but row 1 is normalized with them
// too.
TEST(Reference, BatchNormUsesStatisticsOfValidRows) {
  const BatchNormSizes sizes{.x = {2, 1, 1, 2}, .attributes = {.epsilon = 3, .relu = true}};
  const auto out =
      Outputs(BatchNormSpec(sizes), {{1, 3, 6, 0}, {2}, {0}, {}, {0}, {0}}, {.valid_rows = 1});
  ExpectElements(out[0], {0, 1, 4, 0});
}

TEST(Reference, BatchNormOfOneElementUsesItsBiasedVariance) {
  const BatchNormSizes sizes{.x = {1, 1}, .attributes = {.decay = 0.5}};
  std::vector<Elements> state;
  Outputs(BatchNormSpec(sizes), {{8}, {1}, {0}, {}, {0}, {1}}, {}, &state);
  ExpectElements(state[kPosition<BatchNormInputs>.moving_mean], {4});
  ExpectElements(state[kPosition<BatchNormInputs>.moving_variance], {0.5});
}

TEST(Reference, BatchNormInferenceWithResidual) {
  const BatchNormSizes sizes{.x = {1, 2, 1, 1},
                             .gamma = false,
                             .beta = false,
                             .residual = true,
                             .attributes = {.epsilon = 0, .training = false, .relu = true}};
  const auto out = Outputs(BatchNormSpec(sizes), {{5, 1}, {}, {}, {10, 1}, {1, 7}, {4, 9}});
  ExpectElements(out[0], {12, 0});
}

// xhat = -1, 1 with rstd 1; g = 1, 3: dbeta 4, dgamma 2; dx = gamma (g - 2 - xhat) = 0.
TEST(Reference, BatchNormBackward) {
  const BatchNormSizes sizes{.x = {2, 1}};
  const auto out =
      Outputs(BatchNormBackwardSpec(sizes), {{1, 3}, {4, 6}, {}, {2}, {0}, {5}, {1}, {}, {}});
  ExpectElements(out[0], {0, 0});
  ExpectElements(out[1], {2});
  ExpectElements(out[2], {4});
}

// As above, with an invalid row: there dx = gamma rstd g.
TEST(Reference, BatchNormBackwardOfValidRows) {
  const BatchNormSizes sizes{.x = {3, 1}};
  const auto out =
      Outputs(BatchNormBackwardSpec(sizes), {{1, 3, 5}, {4, 6, 9}, {}, {2}, {0}, {5}, {1}, {}, {}},
              {.valid_rows = 2});
  ExpectElements(out[0], {0, 0, 10});
  ExpectElements(out[1], {2});
  ExpectElements(out[2], {4});
}

// g = dy + dy2 = 1, 3, and 0 where y is 0: dbeta 4, dgamma -1 + 3 = 2 with xhat = -1, 1, 0.
// dx without the addend is 0 in all rows.
TEST(Reference, BatchNormBackwardOfTwoGradientsAndAnAddend) {
  const BatchNormSizes sizes{
      .x = {3, 1}, .residual = true, .dy2 = true, .addend = true, .attributes = {.relu = true}};
  const auto out =
      Outputs(BatchNormBackwardSpec(sizes),
              {{3, 1, 7}, {4, 6, 5}, {8, 9, 0}, {2}, {0}, {5}, {1}, {-2, 2, 7}, {10, 20, 30}},
              {.valid_rows = 2});
  ExpectElements(out[0], {10, 20, 30});
  ExpectElements(out[1], {2});
  ExpectElements(out[2], {4});
  ExpectElements(out[3], {1, 3, 0});
}

// w = 1 2 | 3 4 for two channels; gamma / deviation is 3/2 and -1/4.
TEST(Reference, FoldWeights) {
  OpSpec spec = FoldWeightsSpec({2, 2});
  spec.attributes = FoldedBatchNormAttributes{.epsilon = 1};
  const Elements w{1, 2, 3, 4}, gamma{3, -1};
  const auto out = Outputs(spec, {w, gamma, {3, 15}});
  ExpectElements(out[0], {1.5, -0.5, 4.5, -1});
  ExpectElements(out[1], {0.5, 0.25});
  const auto gradients =
      Outputs(FoldWeightsBackwardSpec({2, 2}), {{1, 10, 2, 20}, w, gamma, {0.5, 0.25}});
  ExpectElements(gradients[0], {1.5, -2.5, 3, -5});
  ExpectElements(gradients[1], {0.5 * (1 + 6), 0.25 * (20 + 80)});
}

// z = 1, 3 | 5, 7 has mean 4 and variance 5, so that rb is 1/3. The last row is not valid.
// y = c * rb/rm + beta - gamma * mean * rb = c * 2/3 + 10 - 4.
TEST(Reference, FoldedBatchNorm) {
  const FoldedBatchNormSizes sizes{.c = {3, 1, 1, 2}, .attributes = {.epsilon = 4, .decay = 0.9}};
  std::vector<Elements> state;
  const auto out = Outputs(FoldedBatchNormSpec(sizes),
                           {{3, 6, 9, 0, -3, 30}, {1, 3, 5, 7, 90, 90}, {3}, {10}, {0.5}, {2}, {1}},
                           {.valid_rows = 2}, &state);
  ExpectElements(out[0], {8, 10, 12, 6, 4, 26});
  ExpectElements(out[1], {4});
  ExpectElements(out[2], {1.0 / 3});
  ExpectElements(state[kPosition<FoldedBatchNormInputs>.moving_mean], {2 + 0.1 * 2});
  ExpectElements(state[kPosition<FoldedBatchNormInputs>.moving_variance],
                 {1 + 0.1 * (20.0 / 3 - 1)});
}

// In inference, y = c + beta - gamma * moving mean * rm.
TEST(Reference, FoldedBatchNormInference) {
  const FoldedBatchNormSizes sizes{.c = {1, 2}, .attributes = {.training = false}};
  ExpectElements(Outputs(FoldedBatchNormSpec(sizes),
                         {{1, 2}, {}, {3, 4}, {10, 20}, {0.5, 1}, {2, 6}, {1, 1}})[0],
                 {1 + 10 - 3, 2 + 20 - 24});
}

TEST(Reference, MultiplyAndAssign) {
  ExpectElements(Outputs(SameShapeSpec(op::kMultiply, {}, {1, 2}, 2), {{1, 2}, {10, -3}})[0],
                 {10, -6});
  const TensorSpec scalar = PlainSpec({});
  std::vector<Elements> state;
  const auto out = Outputs({op::kAssign, {}, {scalar, scalar}, {scalar}}, {{7}, {1}}, {}, &state);
  ExpectElements(out[0], {7});
  ExpectElements(state[kPosition<AssignInputs>.variable], {7});
}

TEST(Reference, ReluAndRelu6) {
  const Shape shape{1, 5};
  ExpectElements(
      Outputs(SameShapeSpec(op::kRelu, ReluAttributes{}, shape, 1), {{-1, 0, 3, 6, 9}})[0],
      {0, 0, 3, 6, 9});
  ExpectElements(Outputs(SameShapeSpec(op::kRelu, ReluAttributes{.ceiling = 6}, shape, 1),
                         {{-1, 0, 3, 6, 9}})[0],
                 {0, 0, 3, 6, 6});
  ExpectElements(Outputs(SameShapeSpec(op::kReluBackward, ReluAttributes{.ceiling = 6}, shape, 2),
                         {{1, 2, 3, 4, 5}, {0, 0, 3, 6, 6}})[0],
                 {0, 0, 3, 0, 0});
}

TEST(Reference, AddsThree) {
  ExpectElements(Outputs(SameShapeSpec(op::kAdd, {}, {1, 2}, 3), {{1, 2}, {10, 20}, {100, 200}})[0],
                 {111, 222});
}

// The numbers are negative, so zeros in the padding would be the maximum. The left 2 x 2 window has
// a tie; the first pixel in row-major order gets the gradient.
TEST(Reference, MaxPool) {
  const PoolSizes sizes{{1, 1, 2, 3}, {.padding = {0, 0, 0, 1}}};
  const auto out = Outputs(Pool2dSpec(sizes), {{-5, -1, -3, -1, -2, -4}});
  ExpectElements(out[0], {-1, -3});
  ExpectElements(out[1], {1, 2});
  ExpectElements(Outputs(Pool2dBackwardSpec(sizes), {{10, 20}, out[1]})[0], {0, 10, 20, 0, 0, 0});
}

TEST(Reference, AveragePoolDividesByThePixelsItCovers) {
  const PoolSizes sizes{{1, 1, 2, 3},
                        {.mode = Pool2dAttributes::Mode::kAverage, .padding = {0, 0, 0, 1}}};
  ExpectElements(Outputs(Pool2dSpec(sizes), {{1, 2, 3, 4, 5, 6}})[0], {3, 4.5});
  ExpectElements(Outputs(Pool2dBackwardSpec(sizes), {{4, 2}, {}})[0], {1, 1, 1, 1, 1, 1});
}

// Channels 1, 2, 3, radius 1, bias 1, alpha 1, beta 1: denominators 1+1+4, 1+1+4+9, 1+4+9.
TEST(Reference, Lrn) {
  const LrnAttributes a{.radius = 1, .bias = 1, .alpha = 1, .beta = 1};
  ExpectElements(Outputs(SameShapeSpec(op::kLrn, a, {1, 3, 1, 1}, 1), {{1, 2, 3}})[0],
                 {1.0 / 6, 2.0 / 15, 3.0 / 14});
  // dx_0 = dy_0/6 - 2 x_0 (dy_0 x_0/36 + dy_1 x_1/225), with dy = 36, 0, 0.
  ExpectElements(
      Outputs(SameShapeSpec(op::kLrnBackward, a, {1, 3, 1, 1}, 2), {{36, 0, 0}, {1, 2, 3}})[0],
      {6 - 2, -4, 0});
}

TEST(Reference, DropoutDependsOnSeedAndIndexInTheGlobalBatch) {
  const DropoutAttributes a{.keep = 0.25, .layer = 5};
  const OpSpec spec = SameShapeSpec(op::kDropout, a, {4, 3, 2, 2}, 1);
  const Elements ones(48, 1.0);
  const Elements all = Outputs(spec, {ones}, {.seed = 7, .step = 9})[0];
  const Rng rng(7, RngPurpose::kDropout, 9, 5);
  for (size_t i = 0; i < all.size(); ++i) {
    const float uniform = static_cast<float>(rng.At(i) >> 8) * 0x1p-24f;
    EXPECT_EQ(all[i], uniform < 0.25 ? 4 : 0) << i;
  }
  // The same rows on a rank that has only samples 2 and 3.
  const OpSpec half = SameShapeSpec(op::kDropout, a, {2, 3, 2, 2}, 1);
  const Elements part =
      Outputs(half, {Elements(24, 1.0)}, {.seed = 7, .step = 9, .first_sample = 2})[0];
  EXPECT_EQ(part, Elements(all.begin() + 24, all.end()));
  EXPECT_NE(all, Outputs(spec, {ones}, {.seed = 7, .step = 10})[0]);
}

// Elements are ordered by pixel: two pixels with 1, 2 and 1 channels.
TEST(Reference, ConcatPutsChannelsSideBySide) {
  const OpSpec spec = ConcatSpec({1, 0, 1, 2}, {1, 2, 1});
  ExpectElements(Outputs(spec, {{1, 2}, {10, 11, 20, 21}, {5, 6}})[0],
                 {1, 10, 11, 5, 2, 20, 21, 6});
}

TEST(Reference, SliceTakesTheChannelsFromBegin) {
  ExpectElements(Outputs(SliceSpec({1, 4, 1, 2}, 1, 2), {{1, 10, 11, 5, 2, 20, 21, 6}})[0],
                 {10, 11, 20, 21});
}

TEST(Reference, Pad2dAddsZerosAndRemovesPixels) {
  const Elements x{1, 2, 3, 4, 5, 6};  // 2 x 3
  ExpectElements(Outputs(Pad2dSpec({1, 1, 2, 3}, {1, 0, 0, 1}), {x})[0],
                 {0, 0, 0, 0, 1, 2, 3, 0, 4, 5, 6, 0});
  ExpectElements(Outputs(Pad2dSpec({1, 1, 2, 3}, {-1, -1, 1, 1}), {x})[0], {5, 6, 0, 0, 0, 0});
  ExpectElements(Outputs(Pad2dSpec({1, 1, 2, 3}, {1, 1, -1, -1}), {x})[0], {0, 0, 0, 0, 1, 2});
}

TEST(Reference, HardSwish) {
  const double sixth = static_cast<double>(1.0f / 6.0f);
  const HardActivationAttributes a{.swish = true};
  const Elements x{-4, -3, -1, 0, 1, 3, 5};
  ExpectElements(Outputs(SameShapeSpec(op::kHardActivation, a, {1, 7}, 1), {x})[0],
                 {0, 0, -2 * sixth, 0, 4 * sixth, 18 * sixth, 30 * sixth});
  // The slope is relu6(x + 3) + x in the middle. At the corners and outside, relu6 has slope 0.
  const OpSpec backward = SameShapeSpec(op::kHardActivationBackward, a, {1, 7}, 2);
  ExpectElements(Outputs(backward, {Elements(7, 2.0), x})[0],
                 {0, 0, 2 * sixth, 6 * sixth, 10 * sixth, 12 * sixth, 12 * sixth});
}

TEST(Reference, HardSigmoid) {
  const HardActivationAttributes a{.swish = false};
  const Elements x{-4, -3, 0, 1, 3, 5};
  ExpectElements(Outputs(SameShapeSpec(op::kHardActivation, a, {1, 6}, 1), {x})[0],
                 {0, 0, 3 * 0.16667, 4 * 0.16667, 6 * 0.16667, 6 * 0.16667});
  ExpectElements(
      Outputs(SameShapeSpec(op::kHardActivationBackward, a, {1, 6}, 2), {Elements(6, 3.0), x})[0],
      {0, 0, 3 * 0.16667, 3 * 0.16667, 0, 0});
}

TEST(Reference, Scale) {
  const ScaleAttributes a{.factor = 0.5};
  ExpectElements(Outputs(SameShapeSpec(op::kScale, a, {1, 2}, 1), {{4, -6}})[0], {2, -3});
  ExpectElements(Outputs(SameShapeSpec(op::kScaledAdd, a, {1, 2}, 2), {{1, 2}, {4, -6}})[0],
                 {3, -1});
}

// Two images of two pixels of two channels.
TEST(Reference, ScaleChannels) {
  const Shape x{2, 2, 1, 2};
  const Elements v{1, 2, 3, 4, 5, 6, 7, 8}, scale{10, 100, 2, 3};
  ExpectElements(Outputs(ScaleChannelsSpec(x), {v, scale})[0], {10, 200, 30, 400, 10, 18, 14, 24});
  const Elements dy{1, 0, 2, 1, 1, 1, 0, 2};
  const auto gradients = Outputs(ScaleChannelsBackwardSpec(x), {dy, v, scale});
  ExpectElements(gradients[0], {10, 0, 20, 100, 2, 3, 0, 6});
  ExpectElements(gradients[1], {1 + 6, 0 + 4, 5 + 0, 6 + 16});
}

TEST(Reference, DropPathKeepProbabilityFallsWithTheStep) {
  const DropoutAttributes a{.keep = 0.6, .schedule_steps = 100};
  EXPECT_DOUBLE_EQ(a.KeepAt(0), 1);
  EXPECT_DOUBLE_EQ(a.KeepAt(25), 0.9);
  EXPECT_DOUBLE_EQ(a.KeepAt(100), 0.6);
  EXPECT_DOUBLE_EQ(a.KeepAt(1000), 0.6);
  EXPECT_DOUBLE_EQ((DropoutAttributes{.keep = 0.6}.KeepAt(0)), 0.6);
}

// The index in the global batch decides about a whole row. A rank that has only rows 2 and 3 makes
// the same decisions for them.
TEST(Reference, DropPathDecidesForWholeRowsOfTheGlobalBatch) {
  const DropoutAttributes a{.keep = 0.25, .layer = 5, .per_row = true, .schedule_steps = 2};
  const auto run = [&](int64_t rows, const RunContext& context) {
    return Outputs(SameShapeSpec(op::kDropout, a, {rows, 3, 2, 1}, 1), {Elements(rows * 6, 1.0)},
                   context)[0];
  };
  const Elements all = run(64, {.seed = 7, .step = 1});  // keep 1 - (1 - 0.25) / 2
  const Rng rng(7, RngPurpose::kDropPath, 1, 5);
  int kept = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const bool keep = static_cast<double>(rng.At(i / 6) >> 8) * 0x1p-24 < 0.625;
    kept += keep;
    EXPECT_DOUBLE_EQ(all[i], keep ? 1.6 : 0) << i;
  }
  EXPECT_NEAR(kept / 6, 40, 12);  // three standard deviations of 64 throws
  const Elements part = run(2, {.seed = 7, .step = 1, .first_sample = 2});
  EXPECT_EQ(part, Elements(all.begin() + 12, all.begin() + 24));
  EXPECT_EQ(run(64, {.seed = 7, .step = 0}), Elements(64 * 6, 1.0)) << "keep is 1 at step 0";
}

// Pixels (0, 255) and (128, 7): subtract 10 and 20, then halve.
TEST(Reference, Normalize) {
  const OpSpec spec = NormalizeSpec({1, 2, 1, 2}, {.subtract = {10, 20}, .multiply = 0.5f});
  ExpectElements(Outputs(spec, {{0, 255, 128, 7}})[0], {-5, 117.5, 59, -6.5});
}

TEST(Reference, Softmax) {
  ExpectElements(
      Outputs(SameShapeSpec(op::kSoftmax, {}, {2, 2}, 1), {{0, std::log(3.0), 1000, 1000}})[0],
      {0.25, 0.75, 0.5, 0.5});
}

// p = 1/4, 3/4. Row 0: label 1, weight 2, loss 2 ln 4/3. Row 1 has weight 0 and an invalid label.
TEST(Reference, SoftmaxCrossEntropy) {
  const Elements logits = {0, std::log(3.0), 5, 6};
  const auto out = Outputs(CrossEntropySpec(2, 2, {.scale = 0.5}), {logits, {1, 99}, {2, 0}});
  ExpectElements(out[0], {std::log(4.0 / 3)});
  ExpectElements(out[1], {0.25, -0.25, 0, 0});
  // Smoothing 0.2: t = 0.1, 0.9.
  const auto smooth =
      Outputs(CrossEntropySpec(2, 2, {.smoothing = 0.2}), {logits, {1, 99}, {1, 0}});
  ExpectElements(smooth[0], {0.1 * std::log(4) + 0.9 * std::log(4.0 / 3)});
  ExpectElements(smooth[1], {0.25 - 0.1, 0.75 - 0.9, 0, 0});
}

// p = 1/4, 3/4 and t = 0.4, 0.6, without smoothing and with 0.5.
TEST(Reference, SoftmaxCrossEntropyOfSoftLabels) {
  const Elements logits = {0, std::log(3.0), 5, 6}, soft = {0.4, 0.6, NAN, NAN};
  const auto out = Outputs(SoftCrossEntropySpec(2, 2, {.scale = 0.5}), {logits, soft, {2, 0}});
  ExpectElements(out[0], {0.4 * std::log(4) + 0.6 * std::log(4.0 / 3)});
  ExpectElements(out[1], {0.25 - 0.4, 0.75 - 0.6, 0, 0});
  const auto smooth =
      Outputs(SoftCrossEntropySpec(2, 2, {.smoothing = 0.5}), {logits, soft, {1, 0}});
  ExpectElements(smooth[0], {0.45 * std::log(4) + 0.55 * std::log(4.0 / 3)});
  ExpectElements(smooth[1], {0.25 - 0.45, 0.75 - 0.55, 0, 0});
}

TEST(Reference, OneHotSoftLabelsGiveTheBitsOfLabels) {
  for (const double smoothing : {0.0, 0.1}) {
    const Elements logits = RandomElements(15, 3);
    const Elements labels = {4, 0, 2}, weights = {1, 0.5, 2};
    Elements soft(15, 0);
    for (size_t row = 0; row < labels.size(); ++row)
      soft[row * 5 + static_cast<size_t>(labels[row])] = 1;
    const auto hard =
        Outputs(CrossEntropySpec(3, 5, {.smoothing = smoothing}), {logits, labels, weights});
    EXPECT_EQ(
        Outputs(SoftCrossEntropySpec(3, 5, {.smoothing = smoothing}), {logits, soft, weights}),
        hard);
  }
}

TEST(Reference, NamesALabelOutOfRange) {
  EXPECT_THAT(TextOf<InternalError>([] {
                Outputs(CrossEntropySpec(1, 2, {}), {{0, 0}, {2}, {1}});
              }),
              HasSubstr("label 2 of row 0 is not one of 2 classes"));
}

// A tensor (1,2,1,3) with elements 0..5 in row-major order is 0 3 1 4 2 5 in NHWC.
TEST(Reference, ReorderAndReshape) {
  const Shape map{1, 2, 1, 3};
  const TensorSpec row_major{map, DType::kF32, Layout::RowMajor()};
  const Elements nhwc = {0, 3, 1, 4, 2, 5}, counted = {0, 1, 2, 3, 4, 5};
  ExpectElements(Outputs({op::kReorder, {}, {row_major}, {PlainSpec(map)}}, {counted})[0], nhwc);
  ExpectElements(Outputs({op::kReorder, {}, {PlainSpec(map)}, {row_major}}, {nhwc})[0], counted);
  ExpectElements(Outputs({op::kReshape, {}, {PlainSpec(map)}, {PlainSpec({1, 6})}}, {nhwc})[0],
                 nhwc);
  // A filter (K,C,R,S) = (2,1,1,3) with elements 0..5 is 0 3 1 4 2 5 in the order (R,S,C,K).
  const Shape filter{2, 1, 1, 3};
  const TensorSpec plain{filter, DType::kF32, Layout::RowMajor()};
  ExpectElements(Outputs({op::kReorder, {}, {plain}, {FilterSpec(filter)}}, {counted})[0], nhwc);
}

TEST(Reference, SupportsFloatsAndPlainReorders) {
  OpSpec spec = SameShapeSpec(op::kRelu, ReluAttributes{}, {1, 2}, 1);
  EXPECT_TRUE(Reference().Supports(spec));
  EXPECT_TRUE(Reference().Supports(InDouble(spec)));
  EXPECT_TRUE(Reference().Supports(InNarrow(spec, DType::kBF16)));
  EXPECT_FALSE(Reference().Supports(SameShapeSpec(op::kNormalize, {}, {1, 1, 2, 2}, 1)));
  spec.inputs[0].dtype = DType::kI32;
  EXPECT_FALSE(Reference().Supports(spec));
  EXPECT_THROW(Reference().MakeKernel(spec), InternalError);
  EXPECT_FALSE(Reference().Supports({op::kReorder, {}, {{{1, 2}}}, {{{1, 2}}}}));
}

// Two pixels: 1, 2, 3, 4 with mean 2.5 and variance 1.25, and 0, 0, 0, 0. The epsilon makes both
// variances whole: 4 and 2.75.
TEST(Reference, LayerNormOfPixels) {
  const LayerNormSizes sizes{.x = {1, 4, 1, 2}};
  const LayerNormAttributes a{.epsilon = 2.75};
  const Elements x = {1, 2, 3, 4, 0, 0, 0, 0}, gamma = {2, 2, 2, 4}, beta = {0, 0, 1, 1};
  ExpectElements(Outputs(LayerNormSpec(sizes, a), {x, gamma, beta})[0],
                 {-1.5, -0.5, 1.5, 4, 0, 0, 1, 1});
  // g = gamma * dy = (0, 0, 0, 4): its mean is 1, the mean of g * xhat 0.75.
  const Elements dy = {0, 0, 0, 1, 0, 0, 0, 0};
  const auto d = Outputs(LayerNormBackwardSpec(sizes, a), {dy, x, gamma});
  ExpectElements(d[0], {0.5 * (-1 + 0.75 * 0.75), 0.5 * (-1 + 0.25 * 0.75),
                        0.5 * (-1 - 0.25 * 0.75), 0.5 * (4 - 1 - 0.75 * 0.75), 0, 0, 0, 0});
  ExpectElements(d[1], {0, 0, 0, 0.75});
  ExpectElements(d[2], {0, 0, 0, 1});
}

// The values of the normal distribution, and of the approximation, to 15 digits.
TEST(Reference, GeluAndItsSlope) {
  const Elements x = {0, 1, -1, 3, -40};
  const OpSpec exact = SameShapeSpec(op::kGelu, GeluAttributes(), {1, 5}, 1);
  ExpectElements(Outputs(exact, {x})[0],
                 {0, 0.841344746068543, -0.158655253931457, 2.99595030590511, 0}, 1e-14);
  const OpSpec tanh = SameShapeSpec(op::kGelu, GeluAttributes{.tanh = true}, {1, 5}, 1);
  ExpectElements(Outputs(tanh, {x})[0],
                 {0, 0.841191990608276, -0.158808009391724, 2.99636260791823, 0}, 1e-12);
  const OpSpec slope = SameShapeSpec(op::kGeluBackward, GeluAttributes(), {1, 5}, 2);
  ExpectElements(Outputs(slope, {{2, 1, 1, 1, 1}, x})[0],
                 {1, 1.08331547058769, -0.0833154705876862, 1.01194564720418, 0}, 1e-13);
}

TEST(Reference, SiluAndItsSlope) {
  const Elements x = {0, 1, -2, 40, -800};
  ExpectElements(Outputs(SameShapeSpec(op::kSilu, {}, {1, 5}, 1), {x})[0],
                 {0, 0.731058578630005, -0.238405844044235, 40, 0});
  ExpectElements(Outputs(SameShapeSpec(op::kSiluBackward, {}, {1, 5}, 2), {{2, 1, 1, 1, 1}, x})[0],
                 {1, 0.927670511871487, -0.0907842487848955, 1, 0});
}

TEST(Reference, SigmoidAndItsSlope) {
  const Elements x = {0, 2, -2, 800, -800};
  const Elements y = Outputs(SameShapeSpec(op::kSigmoid, {}, {1, 5}, 1), {x})[0];
  ExpectElements(y, {0.5, 0.880797077977882, 0.119202922022118, 1, 0});
  ExpectElements(
      Outputs(SameShapeSpec(op::kSigmoidBackward, {}, {1, 5}, 2), {{2, 1, 1, 1, 1}, y})[0],
      {0.5, 0.104993585403507, 0.104993585403507, 0, 0});
}

}  // namespace
}  // namespace carole::testing
