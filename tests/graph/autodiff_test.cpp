// Tests the structure of the backward graph. tests/ops/gradient_test.cpp checks the values.
#include "src/graph/autodiff.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "src/backend/ops/add.h"
#include "src/backend/ops/conv2d.h"
#include "src/backend/ops/linear.h"
#include "src/backend/ops/relu.h"
#include "tests/support/graph_runner.h"
#include "tests/support/reference.h"
#include "tests/support/sketch.h"

namespace carole::testing {
namespace {

const Variable& Find(const Graph& graph, const std::string& name) {
  const auto it = std::find_if(graph.variables().begin(), graph.variables().end(),
                               [&](const Variable& v) { return v.name == name; });
  CAROLE_CHECK(it != graph.variables().end(), "no variable {}", name);
  return *it;
}

int Count(const Graph& graph, OpKind kind) {
  return static_cast<int>(std::count_if(graph.nodes().begin(), graph.nodes().end(),
                                        [&](const Node& n) { return n.kind == kind && !n.dead; }));
}

TEST(Autodiff, OneReaderNeedsNoSum) {
  Graph g;
  Sketch s(g);
  s.Head(s.Relu(s.Linear(g.AddInput("x", {2, 4}, DType::kF32), "a", 5)));
  Differentiate(g);
  EXPECT_EQ(Count(g, op::kAdd), 0);
  EXPECT_EQ(Count(g, op::kLinearBackwardFilter), 2);
  EXPECT_EQ(Count(g, op::kLinearBackwardData), 1) << "an input wants no gradient";
  for (const Variable& v : g.variables()) EXPECT_NE(v.gradient, kNone) << v.name;
}

TEST(Autodiff, SumsTheGradientsOfTwoAndThreeReaders) {
  for (int uses : {2, 3}) {
    Graph g(DType::kF64);
    Sketch s(g);
    const ValueId x = g.AddInput("x", {2, 4}, DType::kF64);
    const ValueId w = s.Weight("w", {3, 4});
    // Each use has a separate loss with equal inputs, so each adds the same gradient.
    for (int i = 0; i < uses; ++i) s.Loss(ops::Linear(g, x, w, kNone), std::to_string(i));
    Differentiate(g);
    EXPECT_EQ(Count(g, op::kAdd), 1) << "one sum for any number of readers";
    Graph once(DType::kF64);
    Sketch t(once);
    t.Loss(
        ops::Linear(once, once.AddInput("x", {2, 4}, DType::kF64), t.Weight("w", {3, 4}), kNone));
    Differentiate(once);
    const Elements many = GraphRunner(g, Reference()).Run().gradients.at("w");
    const Elements one = GraphRunner(once, Reference()).Run().gradients.at("w");
    ASSERT_EQ(many.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(many[i], uses * one[i], 1e-14);
  }
}

TEST(Autodiff, UnusedBranchGetsNoGradient) {
  Graph g;
  Sketch s(g);
  const ValueId x = g.AddInput("x", {2, 4}, DType::kF32);
  const ValueId y = s.Linear(x, "used", 5);
  (void)s.Relu(s.Linear(y, "unused", 7));
  s.Head(y);
  Differentiate(g);
  EXPECT_NE(Find(g, "used/weights").gradient, kNone);
  EXPECT_EQ(Find(g, "unused/weights").gradient, kNone);
  EXPECT_EQ(Find(g, "unused/biases").gradient, kNone);
}

TEST(Autodiff, FrozenVariablesGetNoBackwardNodes) {
  Graph g;
  Sketch s(g);
  const ValueId x = g.AddInput("x", {2, 4}, DType::kF32);
  const ValueId y = ops::Linear(g, x, s.Weight("frozen", {5, 4}, false), kNone);
  s.Head(s.Linear(s.Relu(y), "top", 5));
  Differentiate(g);
  EXPECT_EQ(Find(g, "frozen").gradient, kNone);
  EXPECT_EQ(Count(g, op::kLinearBackwardFilter), 2);
  EXPECT_EQ(Count(g, op::kLinearBackwardData), 1) << "nothing trainable lies below the top";
  EXPECT_EQ(Count(g, op::kReluBackward), 0);
}

TEST(Autodiff, ResidualPassesItsGradientOn) {
  Graph g;
  Sketch s(g);
  const ValueId x = s.Conv(g.AddInput("x", {2, 3, 4, 4}, DType::kF32), "root", 3, 1);
  s.Head(s.Add(x, s.Conv(x, "block", 3, 1)));
  Differentiate(g);
  EXPECT_EQ(Count(g, op::kAdd), 2) << "the forward sum and the sum of gradients";
  EXPECT_NE(Find(g, "root/weights").gradient, kNone);
}

// A bucket of the all-reduce starts early only if filter gradients come first.
TEST(Autodiff, FilterGradientComesBeforeDataGradient) {
  Graph g;
  Sketch s(g);
  s.Head(s.Conv(s.Conv(g.AddInput("x", {2, 3, 4, 4}, DType::kF32), "a", 4, 1), "b", 4, 1));
  Differentiate(g);
  std::vector<std::string> order;
  for (const Node& n : g.nodes()) {
    if (n.kind == op::kConv2dBackwardFilter) order.push_back(n.name + " filter");
    if (n.kind == op::kConv2dBackwardData) order.push_back(n.name + " data");
    EXPECT_FALSE(n.phase == Phase::kBackward && n.name.empty());
  }
  EXPECT_THAT(order, ::testing::ElementsAre("b filter", "b data", "a filter"));
}

TEST(Autodiff, KeepsScopeAndPhase) {
  Graph g;
  Sketch s(g);
  s.Head(s.Linear(g.AddInput("x", {2, 4}, DType::kF32), "a", 5));
  g.SetScope("mine");
  Differentiate(g);
  EXPECT_EQ(g.scope(), "mine");
  s.Relu(g.input("x"));
  EXPECT_EQ(g.nodes().back().phase, Phase::kForward);
}

}  // namespace
}  // namespace carole::testing
