// Operations on channels, frames and gates: numbers by hand, and gradients against central
// differences in double, on the reference backend; what they leave in the padding of blocked
// layouts on every backend.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "src/core/rng.h"
#include "tests/support/grad_check.h"
#include "tests/support/op_runner.h"
#include "tests/support/op_specs.h"

namespace carole::testing {
namespace {

std::vector<Elements> RunReference(const OpSpec& spec, const std::vector<Elements>& inputs,
                                   const RunContext& context = {}) {
  static const std::unique_ptr<Backend> backend = MakeReferenceBackend(2);
  return RunPlain(*backend, InDouble(spec), inputs, context);
}

void ExpectElements(const Elements& got, const Elements& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-12) << i;
}

// Elements lie pixel by pixel: two pixels of 1, 2 and 1 channels.
TEST(Concat, PutsChannelsSideBySide) {
  const OpSpec spec = ConcatSpec({1, 0, 1, 2}, {1, 2, 1});
  ExpectElements(RunReference(spec, {{1, 2}, {10, 11, 20, 21}, {5, 6}})[0],
                 {1, 10, 11, 5, 2, 20, 21, 6});
}

TEST(Slice, TakesTheChannelsFromBegin) {
  ExpectElements(RunReference(SliceSpec({1, 4, 1, 2}, 1, 2), {{1, 10, 11, 5, 2, 20, 21, 6}})[0],
                 {10, 11, 20, 21});
}

TEST(Pad2d, AddsZerosAndCutsOff) {
  const Elements x{1, 2, 3, 4, 5, 6};  // 2 x 3
  ExpectElements(RunReference(Pad2dSpec({1, 1, 2, 3}, {1, 0, 0, 1}), {x})[0],
                 {0, 0, 0, 0, 1, 2, 3, 0, 4, 5, 6, 0});
  ExpectElements(RunReference(Pad2dSpec({1, 1, 2, 3}, {-1, -1, 1, 1}), {x})[0], {5, 6, 0, 0, 0, 0});
  ExpectElements(RunReference(Pad2dSpec({1, 1, 2, 3}, {1, 1, -1, -1}), {x})[0], {0, 0, 0, 0, 1, 2});
}

TEST(HardSwish, ByHand) {
  const double sixth = static_cast<double>(1.0f / 6.0f);
  const HardActivationAttributes a{.swish = true};
  const Elements x{-4, -3, -1, 0, 1, 3, 5};
  ExpectElements(RunReference(SameShapeSpec(OpKind::kHardActivation, a, {1, 7}, 1), {x})[0],
                 {0, 0, -2 * sixth, 0, 4 * sixth, 18 * sixth, 30 * sixth});
  // relu6(x + 3) + x within; at the edges and beyond, relu6 has slope 0.
  const OpSpec backward = SameShapeSpec(OpKind::kHardActivationBackward, a, {1, 7}, 2);
  ExpectElements(RunReference(backward, {Elements(7, 2.0), x})[0],
                 {0, 0, 2 * sixth, 6 * sixth, 10 * sixth, 12 * sixth, 12 * sixth});
}

TEST(HardSigmoid, ByHand) {
  const HardActivationAttributes a{.swish = false};
  const Elements x{-4, -3, 0, 1, 3, 5};
  ExpectElements(RunReference(SameShapeSpec(OpKind::kHardActivation, a, {1, 6}, 1), {x})[0],
                 {0, 0, 3 * 0.16667, 4 * 0.16667, 6 * 0.16667, 6 * 0.16667});
  ExpectElements(RunReference(SameShapeSpec(OpKind::kHardActivationBackward, a, {1, 6}, 2),
                              {Elements(6, 3.0), x})[0],
                 {0, 0, 3 * 0.16667, 3 * 0.16667, 0, 0});
}

TEST(Scale, ByHand) {
  const ScaleAttributes a{.factor = 0.5};
  ExpectElements(RunReference(SameShapeSpec(OpKind::kScale, a, {1, 2}, 1), {{4, -6}})[0], {2, -3});
  ExpectElements(
      RunReference(SameShapeSpec(OpKind::kScaledAdd, a, {1, 2}, 2), {{1, 2}, {4, -6}})[0], {3, -1});
}

// Two images of two pixels of two channels.
TEST(ScaleChannels, ByHand) {
  const Shape x{2, 2, 1, 2};
  const Elements v{1, 2, 3, 4, 5, 6, 7, 8}, scale{10, 100, 2, 3};
  ExpectElements(RunReference(ScaleChannelsSpec(x), {v, scale})[0],
                 {10, 200, 30, 400, 10, 18, 14, 24});
  const Elements dy{1, 0, 2, 1, 1, 1, 0, 2};
  const auto gradients = RunReference(ScaleChannelsBackwardSpec(x), {dy, v, scale});
  ExpectElements(gradients[0], {10, 0, 20, 100, 2, 3, 0, 6});
  ExpectElements(gradients[1], {1 + 6, 0 + 4, 5 + 0, 6 + 16});
}

TEST(DropPath, KeepFallsWithTheStep) {
  const DropoutAttributes a{.keep = 0.6, .schedule_steps = 100};
  EXPECT_DOUBLE_EQ(a.KeepAt(0), 1);
  EXPECT_DOUBLE_EQ(a.KeepAt(25), 0.9);
  EXPECT_DOUBLE_EQ(a.KeepAt(100), 0.6);
  EXPECT_DOUBLE_EQ(a.KeepAt(1000), 0.6);
  EXPECT_DOUBLE_EQ((DropoutAttributes{.keep = 0.6}.KeepAt(0)), 0.6);
}

// Whole rows, decided by the sample's place in the global batch: a rank that holds rows 2 and 3
// alone sees what they are in the whole.
TEST(DropPath, DecidesForWholeRowsOfTheGlobalBatch) {
  const DropoutAttributes a{.keep = 0.25, .layer = 5, .per_row = true, .schedule_steps = 2};
  const auto run = [&](int64_t rows, const RunContext& context) {
    return RunReference(SameShapeSpec(OpKind::kDropout, a, {rows, 3, 2, 1}, 1),
                        {Elements(rows * 6, 1.0)}, context)[0];
  };
  const Elements all = run(64, {.seed = 7, .step = 1});  // keep 1 - (1 - 0.25) / 2
  const Rng rng(7, RngPurpose::kDropPath, 1, 5);
  int kept = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const bool keep = static_cast<double>(rng.At(i / 6) >> 8) * 0x1p-24 < 0.625;
    kept += keep;
    EXPECT_DOUBLE_EQ(all[i], keep ? 1.6 : 0) << i;
  }
  EXPECT_NEAR(kept / 6, 40, 12);  // three deviations of 64 throws
  const Elements part = run(2, {.seed = 7, .step = 1, .first_sample = 2});
  EXPECT_EQ(part, Elements(all.begin() + 12, all.begin() + 24));
  EXPECT_EQ(run(64, {.seed = 7, .step = 0}), Elements(64 * 6, 1.0)) << "keep is 1 at step 0";
}

// Gradients: the backward operation against central differences of the forward one.
struct GradientCase {
  std::string name;
  OpSpec forward;
  size_t place;  // of the input
  OpSpec backward;
  std::vector<int> backward_inputs;  // -1: dy, else an input of forward
  size_t backward_output = 0;
};

std::vector<GradientCase> GradientCases() {
  const Shape x{2, 3, 3, 4};
  const HardActivationAttributes swish{.swish = true}, gate{.swish = false};
  const ScaleAttributes scale{.factor = 0.17};
  const DropoutAttributes path{.keep = 0.5, .layer = 1, .per_row = true};
  const OpSpec concat = ConcatSpec({2, 0, 3, 2}, {2, 1, 3});
  const Shape joined = concat.outputs[0].shape;
  const auto same = [&](OpKind kind, const OpAttributes& a, int inputs) {
    return SameShapeSpec(kind, a, x, inputs);
  };
  return {
      {"concat_first", concat, 0, SliceSpec(joined, 0, 2), {-1}},
      {"concat_second", concat, 1, SliceSpec(joined, 2, 1), {-1}},
      {"concat_third", concat, 2, SliceSpec(joined, 3, 3), {-1}},
      {"pad2d", Pad2dSpec(x, {-1, 2, 1, -1}), 0, Pad2dSpec({2, 3, 3, 5}, {1, -2, -1, 1}), {-1}},
      {"hard_swish",
       same(OpKind::kHardActivation, swish, 1),
       0,
       same(OpKind::kHardActivationBackward, swish, 2),
       {-1, 0}},
      {"hard_sigmoid",
       same(OpKind::kHardActivation, gate, 1),
       0,
       same(OpKind::kHardActivationBackward, gate, 2),
       {-1, 0}},
      {"scale", same(OpKind::kScale, scale, 1), 0, same(OpKind::kScale, scale, 1), {-1}},
      {"scaled_add", same(OpKind::kScaledAdd, scale, 2), 1, same(OpKind::kScale, scale, 1), {-1}},
      {"scale_channels_x", ScaleChannelsSpec(x), 0, ScaleChannelsBackwardSpec(x), {-1, 0, 1}},
      {"scale_channels_scale",
       ScaleChannelsSpec(x),
       1,
       ScaleChannelsBackwardSpec(x),
       {-1, 0, 1},
       1},
      {"drop_path",
       same(OpKind::kDropout, path, 1),
       0,
       same(OpKind::kDropoutBackward, path, 1),
       {-1}},
  };
}

TEST(Gradient, ChannelOperations) {
  const RunContext context{.seed = 3, .step = 4};
  for (const GradientCase& c : GradientCases()) {
    SCOPED_TRACE(c.name);
    std::vector<Elements> in;
    for (const TensorSpec& t : c.forward.inputs) {
      in.push_back(RandomElements(t.shape.size(), 20 + in.size()));
      for (double& v : in.back()) v *= 3;
    }
    const Elements dy = RandomElements(c.forward.outputs[0].shape.size(), 9);
    std::vector<Elements> backward_in;
    for (int i : c.backward_inputs) backward_in.push_back(i < 0 ? dy : in[i]);
    const auto f = [&](const Elements& x) {
      std::vector<Elements> moved = in;
      moved[c.place] = x;
      const Elements y = RunReference(c.forward, moved, context)[0];
      return std::inner_product(y.begin(), y.end(), dy.begin(), 0.0);
    };
    ExpectGradient(c.name, f, in[c.place],
                   RunReference(c.backward, backward_in, context)[c.backward_output]);
  }
}

// 20 channels in blocks of 16 or 8: the lanes behind the last one must stay 0, since the next
// convolution reads them.
TEST(PaddedChannels, StayZero) {
  if (!OneDnnAvailable()) GTEST_SKIP() << "onednn is not built in";
  const auto backend = MakeOneDnnBackend(2);
  OpSpec conv = Conv2dSpec(Conv({2, 16, 4, 4}, 20, 1));
  for (TensorSpec& t : conv.inputs) t.layout = Layout::Any();
  conv.outputs[0].layout = Layout::Any();
  const Layout blocks = backend->MakeKernel(conv)->output_layouts()[0];
  const Shape x = conv.outputs[0].shape;
  if (blocks.is_plain()) GTEST_SKIP() << "this CPU's convolutions keep NHWC";
  for (OpSpec spec : {ConcatSpec(x, {20, 20, 7}), SliceSpec(x, 3, 9), Pad2dSpec(x, {1, 1, -1, 0}),
                      ScaleChannelsSpec(x),
                      SameShapeSpec(OpKind::kHardActivation, HardActivationAttributes{}, x, 1),
                      SameShapeSpec(OpKind::kDropout, DropoutAttributes{.per_row = true}, x, 1)}) {
    SCOPED_TRACE(Name(spec.kind));
    std::vector<Elements> in;
    for (const TensorSpec& t : spec.inputs) in.emplace_back(t.shape.size(), 1.0);
    const std::vector<GuardedTensor> values = MakeInputs(spec, in);
    spec.inputs[0].layout = blocks;
    spec.outputs[0].layout = Layout::Any();
    OpRun run(*backend, spec, values);
    run.Run({.seed = 1});
    const Tensor& y = run.output(0).tensor();
    ASSERT_GT(y.bytes(), sizeof(float) * static_cast<size_t>(y.size())) << "not padded";
    const auto* floats = reinterpret_cast<const float*>(y.data);
    double stored = 0, visible = 0;
    for (size_t i = 0; i < y.bytes() / sizeof(float); ++i) stored += std::abs(floats[i]);
    const GuardedTensor plain = Reordered(*backend, run.output(0), Layout::Nhwc());
    for (double v : plain.Read()) visible += std::abs(v);
    EXPECT_FLOAT_EQ(static_cast<float>(stored), static_cast<float>(visible));
  }
}

}  // namespace
}  // namespace carole::testing
