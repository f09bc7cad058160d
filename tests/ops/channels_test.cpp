// Operations on channels (concatenation, scaling by channel, padding): which gradients they have,
// and which shapes they reject. gradient_test.cpp checks the values of the gradients.
#include <gtest/gtest.h>

#include <algorithm>

#include "src/backend/ops/add.h"
#include "src/backend/ops/concat.h"
#include "src/backend/ops/scale_channels.h"
#include "src/core/error.h"
#include "src/graph/autodiff.h"
#include "tests/support/sketch.h"

namespace carole::testing {
namespace {

int64_t CountNodes(const Graph& g, OpKind kind) {
  return std::count_if(g.nodes().begin(), g.nodes().end(),
                       [&](const Node& n) { return n.kind == kind; });
}

// The input images need no gradient.
TEST(ChannelOps, ComputeOnlyTheGradientsThatAreNeeded) {
  Graph g(DType::kF64);
  Sketch s(g);
  const ValueId images = g.AddInput("images", {4, 2, 3, 3}, g.compute());
  const ValueId sum = ops::ScaledAdd(g, s.Conv(images, "a", 2, 1), images, 0.5);
  s.Head(ops::Concat(g, {images, sum}));
  Differentiate(g);
  EXPECT_EQ(CountNodes(g, op::kSlice), 1);
  EXPECT_EQ(CountNodes(g, op::kScale), 0);
}

TEST(ChannelOps, ComputeTheGradientOfTheFactorsAlone) {
  Graph g(DType::kF64);
  Sketch s(g);
  const ValueId images = g.AddInput("images", {4, 2, 1, 1}, g.compute());
  s.Head(ops::ScaleChannels(g, images, s.Conv(images, "gate", 2, 1)));
  Differentiate(g);
  for (const Node& n : g.nodes()) {
    if (n.kind != op::kScaleChannelsBackward) continue;
    EXPECT_EQ(n.outputs[0], kNone);
    EXPECT_NE(n.outputs[1], kNone);
  }
  EXPECT_EQ(CountNodes(g, op::kScaleChannelsBackward), 1);
}

TEST(ChannelOps, ConcatOfOneInputReturnsIt) {
  Graph g;
  const ValueId x = g.AddInput("images", {1, 2, 3, 3}, g.compute());
  EXPECT_EQ(ops::Concat(g, {x}), x);
}

TEST(ChannelOps, RejectShapesThatDoNotFit) {
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
