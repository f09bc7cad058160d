// Operations that keep the shape of their input, and reshape (ops.h).
#include "src/backend/ops/add.h"
#include "src/backend/ops/copies.h"
#include "src/backend/ops/hard_activation.h"
#include "src/backend/ops/multiply.h"
#include "src/backend/ops/relu.h"
#include "src/core/check.h"
#include "src/ops/gradients.h"
#include "src/ops/ops.h"

namespace carole::ops {
namespace {

std::vector<ValueId> AddRule(const GradientArgs& args) {
  std::vector<ValueId> dx;
  for (bool wanted : args.wanted) dx.push_back(wanted ? args.dy[0] : kNone);
  return dx;
}

std::vector<ValueId> MultiplyRule(const GradientArgs& args) {
  const std::vector<ValueId>& factors = args.node.inputs;
  const auto times = [&](ValueId factor) { return Multiply(args.graph, args.dy[0], factor); };
  return {args.wanted[0] ? times(factors[1]) : kNone, args.wanted[1] ? times(factors[0]) : kNone};
}

std::vector<ValueId> ReshapeRule(const GradientArgs& args) {
  return {Reshape(args.graph, args.dy[0], args.graph.shape(args.node.inputs[0]))};
}

}  // namespace

ValueId ReluGradient(Graph& g, ValueId dy, ValueId y, double ceiling) {
  return g.AddResult(
      {.kind = op::kReluBackward, .attributes = ReluAttributes{ceiling}, .inputs = {dy, y}},
      g.shape(y));
}

ValueId Relu(Graph& g, ValueId x, double ceiling) {
  return Append(g, op::kRelu, ReluAttributes{ceiling}, {x});
}

ValueId HardSwish(Graph& g, ValueId x) {
  return Append(g, op::kHardActivation, HardActivationAttributes{.swish = true}, {x});
}

ValueId HardSigmoid(Graph& g, ValueId x) {
  return Append(g, op::kHardActivation, HardActivationAttributes{.swish = false}, {x});
}

ValueId Lrn(Graph& g, ValueId x, const LrnAttributes& attributes) {
  return Append(g, op::kLrn, attributes, {x});
}

ValueId Add(Graph& g, ValueId a, ValueId b) {
  CAROLE_CHECK_EQ(g.shape(a), g.shape(b), "{}: add", g.scope());
  return g.AddResult({.kind = op::kAdd, .inputs = {a, b}, .gradient = AddRule}, g.shape(a));
}

ValueId Multiply(Graph& g, ValueId a, ValueId b) {
  CAROLE_CHECK_EQ(g.shape(a), g.shape(b), "{}: multiply", g.scope());
  return g.AddResult({.kind = op::kMultiply, .inputs = {a, b}, .gradient = MultiplyRule},
                     g.shape(a));
}

ValueId Dropout(Graph& g, ValueId x, const DropoutAttributes& attributes) {
  CAROLE_CHECK(attributes.keep > 0 && attributes.keep <= 1, "{}: dropout with keep probability {}",
               g.scope(), attributes.keep);
  return Append(g, op::kDropout, attributes, {x});
}

ValueId Reshape(Graph& g, ValueId x, const Shape& shape) {
  CAROLE_CHECK_EQ(shape.size(), g.shape(x).size(), "{}: reshape to {}", g.scope(),
                  shape.ToString());
  return g
      .AddNode({.kind = op::kReshape, .inputs = {x}, .gradient = ReshapeRule},
               {{shape, g.value(x).dtype}})
      .outputs[0];
}

}  // namespace carole::ops
