// The reference backend's gradients against central differences, in double.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/support/grad_check.h"
#include "tests/support/op_runner.h"
#include "tests/support/op_specs.h"
#include "tests/support/reference.h"

namespace carole::testing {
namespace {

double Dot(const Elements& a, const Elements& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// Random elements for every input that is there.
std::vector<Elements> RandomInputs(const OpSpec& spec, uint64_t seed) {
  std::vector<Elements> inputs;
  for (const TensorSpec& t : spec.inputs) {
    inputs.push_back(t.present ? RandomElements(t.shape.size(), seed++) : Elements());
  }
  return inputs;
}

// Checks d(dy . output 0)/d(input `place`) of a forward operation.
void ExpectGradientOf(const std::string& name, const OpSpec& forward,
                      const std::vector<Elements>& inputs, size_t place, const Elements& dy,
                      const Elements& gradient, const RunContext& context = {}) {
  const OpSpec spec = InDouble(forward);
  const auto f = [&](const Elements& x) {
    std::vector<Elements> moved = inputs;
    moved[place] = x;
    return Dot(RunPlain(Reference(), spec, moved, context)[0], dy);
  };
  ExpectGradient(name, f, inputs[place], gradient);
}

std::vector<Elements> RunInDouble(const OpSpec& spec, const std::vector<Elements>& inputs,
                                  const RunContext& context = {}) {
  return RunPlain(Reference(), InDouble(spec), inputs, context);
}

TEST(Gradient, Conv2d) {
  const ConvSizes rows[] = {
      Conv({2, 3, 6, 5}, 4, 3, {.padding = Around(1)}),
      Conv({1, 4, 7, 8}, 5, {3, 2}, {.stride_h = 2, .stride_w = 3, .padding = {0, 1, 1, 0}}),
      Conv({2, 5, 4, 4}, 3, 1),
      Conv({1, 2, 8, 8}, 2, 3, {.padding = Around(2), .dilation = 2}),
      Conv({2, 6, 5, 5}, 4, 3, {.padding = Around(1), .groups = 2}),
      Conv({2, 3, 5, 6}, 3, 3,
           {.stride_h = 2, .stride_w = 2, .padding = {0, 0, 1, 1}, .groups = 3}),
      Conv({1, 3, 5, 5}, 6, 3, {.groups = 3}),
  };
  for (ConvSizes sizes : rows) {
    sizes.bias = true;
    SCOPED_TRACE(sizes.x.ToString() + " by " + sizes.w().ToString());
    const OpSpec forward = Conv2dSpec(sizes);
    const auto in = RandomInputs(forward, 1);
    const Elements dy = RandomElements(sizes.y().size(), 9);
    const auto dx = RunInDouble(Conv2dBackwardDataSpec(sizes), {dy, in[1]});
    const auto dw = RunInDouble(Conv2dBackwardFilterSpec(sizes), {in[0], dy});
    ExpectGradientOf("dx", forward, in, 0, dy, dx[0]);
    ExpectGradientOf("dw", forward, in, 1, dy, dw[0]);
    ExpectGradientOf("db", forward, in, 2, dy, dw[1]);
  }
}

TEST(Gradient, Linear) {
  const LinearSizes sizes{.n = 3, .c = 7, .k = 5, .bias = true};
  const OpSpec forward = LinearSpec(sizes);
  const auto in = RandomInputs(forward, 1);
  const Elements dy = RandomElements(15, 9);
  const auto dw = RunInDouble(LinearBackwardFilterSpec(sizes), {in[0], dy});
  ExpectGradientOf("dx", forward, in, 0, dy,
                   RunInDouble(LinearBackwardDataSpec(sizes), {dy, in[1]})[0]);
  ExpectGradientOf("dw", forward, in, 1, dy, dw[0]);
  ExpectGradientOf("db", forward, in, 2, dy, dw[1]);
}

// dy is 0 in rows that do not count, as a loss makes it; dx must then be 0 there too.
void CheckBatchNorm(const BatchNormSizes& sizes, int64_t valid_rows) {
  using F = BatchNormPlaces;
  using B = BatchNormBackwardPlaces;
  const RunContext context{.valid_rows = valid_rows};
  const OpSpec forward = BatchNormSpec(sizes), backward = BatchNormBackwardSpec(sizes);
  const auto in = RandomInputs(forward, 1);
  Elements dy = RandomElements(sizes.x.size(), 9);
  if (valid_rows > 0) {
    std::fill(dy.begin() + valid_rows * sizes.x.size() / sizes.x[0], dy.end(), 0.0);
  }
  const auto out = RunInDouble(forward, in, context);
  const auto gradients = RunInDouble(
      backward,
      {dy, in[F::kX], backward.inputs[B::kY].present ? out[F::kY] : Elements(), in[F::kGamma],
       in[F::kBeta], out[F::kMean], out[F::kRstd], Elements(), Elements()},
      context);
  ExpectGradientOf("dx", forward, in, F::kX, dy, gradients[B::kDx], context);
  if (sizes.gamma) ExpectGradientOf("dgamma", forward, in, F::kGamma, dy, gradients[1], context);
  if (sizes.beta) ExpectGradientOf("dbeta", forward, in, F::kBeta, dy, gradients[2], context);
  if (sizes.residual) {
    ExpectGradientOf("dresidual", forward, in, F::kResidual, dy, gradients[3], context);
  }
}

TEST(Gradient, BatchNorm) {
  const BatchNormAttributes none, relu{.relu = true}, relu6{.relu = true, .ceiling = 0.75};
  for (const BatchNormAttributes& a : {none, relu, relu6}) {
    for (const bool residual : {false, true}) {
      for (const bool scaled : {false, true}) {
        SCOPED_TRACE(::testing::Message() << "relu " << a.relu << " ceiling " << a.ceiling
                                          << " residual " << residual << " scaled " << scaled);
        const BatchNormSizes sizes{.x = {3, 4, 3, 2},
                                   .gamma = scaled,
                                   .beta = scaled,
                                   .residual = residual,
                                   .attributes = a};
        CheckBatchNorm(sizes, 0);
        CheckBatchNorm(sizes, 2);
      }
    }
  }
}

TEST(Gradient, Pool2d) {
  const Pool2dAttributes rows[] = {
      {},
      {.window_h = 3, .window_w = 2, .stride_h = 2, .stride_w = 1, .padding = {1, 0, 1, 1}},
  };
  for (Pool2dAttributes a : rows) {
    for (const auto mode : {Pool2dAttributes::Mode::kMax, Pool2dAttributes::Mode::kAverage}) {
      a.mode = mode;
      const PoolSizes sizes{{2, 3, 6, 4}, a};
      SCOPED_TRACE(sizes.is_max() ? "max" : "average");
      const OpSpec forward = Pool2dSpec(sizes);
      const auto in = RandomInputs(forward, 1);
      const Elements dy = RandomElements(sizes.y().size(), 9);
      const auto out = RunInDouble(forward, in);
      const auto dx = RunInDouble(Pool2dBackwardSpec(sizes), {dy, out[1]});
      ExpectGradientOf("dx", forward, in, 0, dy, dx[0]);
    }
  }
}

TEST(Gradient, ReluAndRelu6) {
  for (const double ceiling : {0.0, 6.0}) {
    const ReluAttributes a{.ceiling = ceiling};
    const OpSpec forward = SameShapeSpec(OpKind::kRelu, a, {2, 3, 4, 4}, 1);
    auto in = RandomInputs(forward, 1);
    for (double& v : in[0]) v *= 5;
    const Elements dy = RandomElements(in[0].size(), 9);
    const auto dx = RunInDouble(SameShapeSpec(OpKind::kReluBackward, a, {2, 3, 4, 4}, 2),
                                {dy, RunInDouble(forward, in)[0]});
    ExpectGradientOf("dx", forward, in, 0, dy, dx[0]);
  }
}

TEST(Gradient, Lrn) {
  const LrnAttributes a{.radius = 2, .bias = 1.5, .alpha = 0.3, .beta = 0.75};
  const OpSpec forward = SameShapeSpec(OpKind::kLrn, a, {2, 7, 2, 3}, 1);
  const auto in = RandomInputs(forward, 1);
  const Elements dy = RandomElements(in[0].size(), 9);
  const auto dx = RunInDouble(SameShapeSpec(OpKind::kLrnBackward, a, {2, 7, 2, 3}, 2), {dy, in[0]});
  ExpectGradientOf("dx", forward, in, 0, dy, dx[0]);
}

TEST(Gradient, Dropout) {
  const DropoutAttributes a{.keep = 0.7, .layer = 2};
  const RunContext context{.seed = 3, .step = 4};
  const OpSpec forward = SameShapeSpec(OpKind::kDropout, a, {3, 11}, 1);
  const auto in = RandomInputs(forward, 1);
  const Elements dy = RandomElements(33, 9);
  const auto dx =
      RunInDouble(SameShapeSpec(OpKind::kDropoutBackward, a, {3, 11}, 1), {dy}, context);
  ExpectGradientOf("dx", forward, in, 0, dy, dx[0], context);
}

TEST(Gradient, SoftmaxCrossEntropy) {
  const OpSpec spec = CrossEntropySpec(4, 6, {.smoothing = 0.1, .scale = 0.25});
  const std::vector<Elements> in = {RandomElements(24, 1), {5, 0, -1, 2}, {1, 0.5, 0, 2}};
  ExpectGradientOf("dlogits", spec, in, 0, {1.0}, RunInDouble(spec, in)[1]);
}

}  // namespace
}  // namespace carole::testing
