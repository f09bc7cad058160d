// The gradient rules of operations on channels, frames and gates, through a whole graph: central
// differences of the loss in double.
#include <gtest/gtest.h>

#include <algorithm>

#include "src/backend/backend.h"
#include "src/core/error.h"
#include "src/graph/autodiff.h"
#include "src/ops/ops.h"
#include "tests/support/grad_check.h"
#include "tests/support/graph_runner.h"

namespace carole::testing {
namespace {

constexpr int64_t kBatch = 4;

ValueId Filter(Graph& g, const std::string& name, int64_t k, int64_t c) {
  return g.AddVariable({.name = name, .tf_shape = {1, 1, c, k}, .shape = {k, c, 1, 1}});
}

ValueId Pointwise(Graph& g, ValueId x, const std::string& name, int64_t k) {
  return ops::Conv2d(g, x, Filter(g, name, k, g.shape(x)[1]), kNone, {});
}

void AddLoss(Graph& g, ValueId x) {
  const Shape shape = g.shape(x);
  const int64_t features = shape.size() / shape[0];
  const ValueId w =
      g.AddVariable({.name = "last/weights", .tf_shape = {features, 3}, .shape = {3, features}});
  const ValueId labels = g.AddInput("labels", {kBatch}, DType::kI32);
  const ValueId weights = g.AddInput("weights", {kBatch}, g.compute());
  const ValueId logits = ops::Linear(g, ops::Reshape(g, x, {kBatch, features}), w, kNone);
  g.AddLoss("loss", ops::SoftmaxCrossEntropy(g, logits, labels, weights, {}));
}

// Squeeze-excite, concatenation, the shifted half of a factorised reduction, drop path, a scaled
// residual.
void BuildEverything(Graph& g) {
  const ValueId images = g.AddInput("images", {kBatch, 2, 5, 5}, g.compute());
  const ValueId a = ops::HardSwish(g, ops::Scale(g, Pointwise(g, images, "a/weights", 4), 3));
  const Pool2dAttributes whole{.mode = Pool2dAttributes::Mode::kAverage,
                               .window_h = 5,
                               .window_w = 5,
                               .stride_h = 1,
                               .stride_w = 1};
  const ValueId squeezed = ops::Pool2d(g, a, whole, true);
  const ValueId gate = ops::HardSigmoid(g, Pointwise(g, squeezed, "gate/weights", 4));
  const ValueId excited = ops::ScaleChannels(g, a, gate);
  const ValueId joined = ops::Concat(g, {excited, Pointwise(g, images, "b/weights", 3), a});
  const ValueId shifted = ops::Pad2d(g, joined, {-1, -1, 1, 1});
  const ValueId dropped =
      ops::Dropout(g, shifted, {.keep = 0.6, .layer = 1, .per_row = true, .schedule_steps = 10});
  AddLoss(g, ops::ScaledAdd(g, dropped, Pointwise(g, dropped, "up/weights", 11), 0.17));
}

int64_t CountNodes(const Graph& g, OpKind kind) {
  return std::count_if(g.nodes().begin(), g.nodes().end(),
                       [&](const Node& n) { return n.kind == kind; });
}

TEST(ChannelOps, GradientsOfAllVariables) {
  Graph g(DType::kF64);
  BuildEverything(g);
  Differentiate(g);
  const auto backend = MakeReferenceBackend(1);
  GraphRunner runner(g, *backend);
  const RunContext context{.seed = 1, .step = 5};
  const GraphResult result = runner.Run(context);
  ASSERT_EQ(result.gradients.size(), 5u);
  for (const Variable& v : g.variables()) {
    const auto loss = [&](const Elements& w) {
      runner.SetVariable(v.name, w);
      return runner.Loss(context);
    };
    ExpectGradient(v.name, loss, VariableElements(v), result.gradients.at(v.name));
    runner.SetVariable(v.name, VariableElements(v));
  }
}

// Images need no gradient, so nothing is computed for them.
TEST(ChannelOps, NoGradientWhereNoneIsWanted) {
  Graph g(DType::kF64);
  const ValueId images = g.AddInput("images", {kBatch, 2, 3, 3}, g.compute());
  const ValueId a = Pointwise(g, images, "a/weights", 2);
  const ValueId sum = ops::ScaledAdd(g, a, images, 0.5);
  AddLoss(g, ops::Concat(g, {images, sum}));
  Differentiate(g);
  EXPECT_EQ(CountNodes(g, OpKind::kSlice), 1);
  EXPECT_EQ(CountNodes(g, OpKind::kScale), 0);
}

TEST(ChannelOps, FactorsAloneHaveAGradient) {
  Graph g(DType::kF64);
  const ValueId images = g.AddInput("images", {kBatch, 2, 1, 1}, g.compute());
  AddLoss(g, ops::ScaleChannels(g, images, Pointwise(g, images, "gate/weights", 2)));
  Differentiate(g);
  for (const Node& n : g.nodes()) {
    if (n.kind != OpKind::kScaleChannelsBackward) continue;
    EXPECT_EQ(n.outputs[0], kNone);
    EXPECT_NE(n.outputs[1], kNone);
  }
  EXPECT_EQ(CountNodes(g, OpKind::kScaleChannelsBackward), 1);
}

TEST(ChannelOps, ConcatOfOneIsThatOne) {
  Graph g;
  const ValueId x = g.AddInput("images", {1, 2, 3, 3}, g.compute());
  EXPECT_EQ(ops::Concat(g, {x}), x);
}

TEST(ChannelOps, RefuseShapesThatDoNotFit) {
  Graph g;
  const ValueId x = g.AddInput("x", {2, 3, 4, 4}, g.compute());
  const ValueId smaller = g.AddInput("smaller", {2, 3, 4, 3}, g.compute());
  EXPECT_THROW(ops::Concat(g, {x, smaller}), InternalError);
  EXPECT_THROW(ops::ScaleChannels(g, x, smaller), InternalError);
  EXPECT_THROW(ops::ScaledAdd(g, x, smaller, 2), InternalError);
  EXPECT_THROW(ops::Pad2d(g, x, {-2, 0, -2, 0}), UsageError);
}

}  // namespace
}  // namespace carole::testing
