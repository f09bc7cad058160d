// Activation functions, addition, dropout and reshape (ops.h): shape inference and gradient rules.
#include "src/core/check.h"
#include "src/ops/gradients.h"
#include "src/ops/ops.h"

namespace carole::ops {
namespace {

std::vector<ValueId> ReluRule(const GradientArgs& args) {
  return {ReluGradient(args.graph, args.dy[0], args.node.outputs[0],
                       std::get<ReluAttributes>(args.node.attributes).ceiling)};
}

std::vector<ValueId> HardActivationRule(const GradientArgs& args) {
  Graph& g = args.graph;
  const ValueId x = args.node.inputs[0];
  return {g.AddResult({.kind = OpKind::kHardActivationBackward,
                       .attributes = args.node.attributes,
                       .inputs = {args.dy[0], x}},
                      g.shape(x))};
}

ValueId HardActivation(Graph& g, ValueId x, const HardActivationAttributes& attributes) {
  return g.AddResult({.kind = OpKind::kHardActivation,
                      .attributes = attributes,
                      .inputs = {x},
                      .gradient = HardActivationRule},
                     g.shape(x));
}

std::vector<ValueId> AddRule(const GradientArgs& args) {
  std::vector<ValueId> dx;
  for (bool wanted : args.wanted) dx.push_back(wanted ? args.dy[0] : kNone);
  return dx;
}

std::vector<ValueId> DropoutRule(const GradientArgs& args) {
  Graph& g = args.graph;
  return {g.AddResult({.kind = OpKind::kDropoutBackward,
                       .attributes = args.node.attributes,
                       .inputs = {args.dy[0]}},
                      g.shape(args.dy[0]))};
}

std::vector<ValueId> ReshapeRule(const GradientArgs& args) {
  return {Reshape(args.graph, args.dy[0], args.graph.shape(args.node.inputs[0]))};
}

}  // namespace

ValueId ReluGradient(Graph& g, ValueId dy, ValueId y, double ceiling) {
  return g.AddResult(
      {.kind = OpKind::kReluBackward, .attributes = ReluAttributes{ceiling}, .inputs = {dy, y}},
      g.shape(y));
}

ValueId Relu(Graph& g, ValueId x, double ceiling) {
  return g.AddResult({.kind = OpKind::kRelu,
                      .attributes = ReluAttributes{ceiling},
                      .inputs = {x},
                      .gradient = ReluRule},
                     g.shape(x));
}

ValueId HardSwish(Graph& g, ValueId x) { return HardActivation(g, x, {.swish = true}); }

ValueId HardSigmoid(Graph& g, ValueId x) { return HardActivation(g, x, {.swish = false}); }

ValueId Add(Graph& g, ValueId a, ValueId b) {
  CAROLE_CHECK_EQ(g.shape(a), g.shape(b), "{}: add", g.scope());
  return g.AddResult({.kind = OpKind::kAdd, .inputs = {a, b}, .gradient = AddRule}, g.shape(a));
}

ValueId Dropout(Graph& g, ValueId x, const DropoutAttributes& attributes) {
  CAROLE_CHECK(attributes.keep > 0 && attributes.keep <= 1, "{}: dropout with keep probability {}",
               g.scope(), attributes.keep);
  return g.AddResult(
      {.kind = OpKind::kDropout, .attributes = attributes, .inputs = {x}, .gradient = DropoutRule},
      g.shape(x));
}

ValueId Reshape(Graph& g, ValueId x, const Shape& shape) {
  CAROLE_CHECK_EQ(shape.size(), g.shape(x).size(), "{}: reshape to {}", g.scope(),
                  shape.ToString());
  return g
      .AddNode({.kind = OpKind::kReshape, .inputs = {x}, .gradient = ReshapeRule},
               {{shape, g.value(x).dtype}})
      .outputs[0];
}

}  // namespace carole::ops
