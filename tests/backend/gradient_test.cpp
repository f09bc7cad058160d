// Checks the reference backend's gradients against central differences, in double, for the cases
// that tests/ops/gradient_test.cpp cannot make: invalid rows, and weights of a loss.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "src/backend/ops/batch_norm.h"
#include "src/backend/ops/folded_batch_norm.h"
#include "tests/support/grad_check.h"
#include "tests/support/op_runner.h"
#include "tests/support/op_specs.h"
#include "tests/support/reference.h"

namespace carole::testing {
namespace {

constexpr auto kBackIn = kPosition<BatchNormBackwardInputs>;
constexpr auto kBackOut = kPosition<BatchNormBackwardOutputs>;

constexpr auto kForwardIn = kPosition<BatchNormInputs>;
constexpr auto kForwardOut = kPosition<BatchNormOutputs>;

double Dot(const Elements& a, const Elements& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// Random elements for every input that is present.
std::vector<Elements> RandomInputs(const OpSpec& spec, uint64_t seed) {
  std::vector<Elements> inputs;
  for (const TensorSpec& t : spec.inputs) {
    inputs.push_back(t.present ? RandomElements(t.shape.size(), seed++) : Elements());
  }
  return inputs;
}

// Checks d(dy . output 0)/d(inputs[index]) of a forward operation.
void ExpectGradientOf(const std::string& name, const OpSpec& forward,
                      const std::vector<Elements>& inputs, size_t index, const Elements& dy,
                      const Elements& gradient, const RunContext& context = {}) {
  const OpSpec spec = InDouble(forward);
  const auto f = [&](const Elements& x) {
    std::vector<Elements> moved = inputs;
    moved[index] = x;
    return Dot(RunPlain(Reference(), spec, moved, context)[0], dy);
  };
  ExpectGradient(name, f, inputs[index], gradient);
}

std::vector<Elements> RunInDouble(const OpSpec& spec, const std::vector<Elements>& inputs,
                                  const RunContext& context = {}) {
  return RunPlain(Reference(), InDouble(spec), inputs, context);
}

// In invalid rows, dy is 0, because a loss makes it so. Then dx must be 0 there too.
void CheckBatchNorm(const BatchNormSizes& sizes, int64_t valid_rows) {
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
      {dy, in[kForwardIn.x], backward.inputs[kBackIn.y].present ? out[kForwardOut.y] : Elements(),
       in[kForwardIn.gamma], in[kForwardIn.beta], out[kForwardOut.mean], out[kForwardOut.rstd],
       Elements(), Elements()},
      context);
  ExpectGradientOf("dx", forward, in, kForwardIn.x, dy, gradients[kBackOut.dx], context);
  if (sizes.gamma)
    ExpectGradientOf("dgamma", forward, in, kForwardIn.gamma, dy, gradients[1], context);
  if (sizes.beta)
    ExpectGradientOf("dbeta", forward, in, kForwardIn.beta, dy, gradients[2], context);
  if (sizes.residual) {
    ExpectGradientOf("dresidual", forward, in, kForwardIn.residual, dy, gradients[3], context);
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

// Inputs of a folded batch norm and the gradients that backward computes from them.
void CheckFoldedBatchNorm(const FoldedBatchNormSizes& sizes, int64_t valid_rows) {
  constexpr auto kIn = kPosition<FoldedBatchNormInputs>;
  constexpr auto kGradients = kPosition<FoldedBatchNormBackwardOutputs>;
  const RunContext context{.valid_rows = valid_rows};
  const OpSpec forward = FoldedBatchNormSpec(sizes);
  auto in = RandomInputs(forward, 1);
  for (double& rm : in[kIn.rm]) rm = std::abs(rm) + 0.5;
  Elements dy = RandomElements(sizes.c.size(), 9);
  if (valid_rows > 0)
    std::fill(dy.begin() + valid_rows * sizes.c.size() / sizes.c[0], dy.end(), 0.0);
  const auto out = RunInDouble(forward, in, context);
  const auto gradients =
      RunInDouble(FoldedBatchNormBackwardSpec(sizes),
                  {dy, in[kIn.c], in[kIn.z], in[kIn.gamma], in[kIn.rm], out[1], out[2]}, context);
  const auto check = [&](const std::string& name, int input, int gradient) {
    if (!in[input].empty())
      ExpectGradientOf(name, forward, in, input, dy, gradients[gradient], context);
  };
  check("dc", kIn.c, kGradients.dc);
  check("dz", kIn.z, kGradients.dz);
  check("dgamma", kIn.gamma, kGradients.dgamma);
  check("dbeta", kIn.beta, kGradients.dbeta);
}

TEST(Gradient, FoldedBatchNorm) {
  for (const bool scaled : {false, true}) {
    for (const int64_t valid_rows : {0, 2}) {
      SCOPED_TRACE(::testing::Message() << "scaled " << scaled << " rows " << valid_rows);
      CheckFoldedBatchNorm({.c = {3, 4, 3, 2}, .gamma = scaled, .beta = scaled}, valid_rows);
    }
  }
}

TEST(Gradient, SoftmaxCrossEntropy) {
  const OpSpec spec = CrossEntropySpec(4, 6, {.smoothing = 0.1, .scale = 0.25});
  const std::vector<Elements> in = {RandomElements(24, 1), {5, 0, -1, 2}, {1, 0.5, 0, 2}};
  ExpectGradientOf("dlogits", spec, in, 0, {1.0}, RunInDouble(spec, in)[1]);
}

TEST(Gradient, SoftmaxCrossEntropyOfSoftLabels) {
  const OpSpec spec = SoftCrossEntropySpec(3, 4, {.smoothing = 0.1, .scale = 0.25});
  const Elements soft = {0.5, 0.25, 0, 0.25, 0, 0, 1, 0, 0.1, 0.2, 0.3, 0.4};
  const std::vector<Elements> in = {RandomElements(12, 1), soft, {1, 0, 2}};
  ExpectGradientOf("dlogits", spec, in, 0, {1.0}, RunInDouble(spec, in)[1]);
}

}  // namespace
}  // namespace carole::testing
