// Scaling by a constant and by channel, and normalization of input images (ops.h): shape inference
// and gradient rules.
#include "src/core/check.h"
#include "src/ops/ops.h"

namespace carole::ops {
namespace {

std::vector<ValueId> ScaleRule(const GradientArgs& args) {
  return {Scale(args.graph, args.dy[0], std::get<ScaleAttributes>(args.node.attributes).factor)};
}

std::vector<ValueId> ScaledAddRule(const GradientArgs& args) {
  const double factor = std::get<ScaleAttributes>(args.node.attributes).factor;
  return {args.wanted[0] ? args.dy[0] : kNone,
          args.wanted[1] ? Scale(args.graph, args.dy[0], factor) : kNone};
}

std::vector<ValueId> ScaleChannelsRule(const GradientArgs& args) {
  Graph& g = args.graph;
  const ValueId x = args.node.inputs[0], scale = args.node.inputs[1];
  const Node& backward = g.AddNode(
      {.kind = OpKind::kScaleChannelsBackward, .inputs = {args.dy[0], x, scale}},
      {{g.shape(x), g.compute(), args.wanted[0]}, {g.shape(scale), g.compute(), args.wanted[1]}});
  return backward.outputs;
}

}  // namespace

ValueId Scale(Graph& g, ValueId x, double factor) {
  return g.AddResult({.kind = OpKind::kScale,
                      .attributes = ScaleAttributes{factor},
                      .inputs = {x},
                      .gradient = ScaleRule},
                     g.shape(x));
}

ValueId ScaledAdd(Graph& g, ValueId a, ValueId b, double factor) {
  CAROLE_CHECK_EQ(g.shape(a), g.shape(b), "{}: scaled add", g.scope());
  return g.AddResult({.kind = OpKind::kScaledAdd,
                      .attributes = ScaleAttributes{factor},
                      .inputs = {a, b},
                      .gradient = ScaledAddRule},
                     g.shape(a));
}

ValueId ScaleChannels(Graph& g, ValueId x, ValueId scale) {
  const Shape& shape = g.shape(x);
  CAROLE_CHECK_EQ(g.shape(scale), (Shape{shape[0], shape[1], 1, 1}), "{}: channel factors of {}",
                  g.scope(), shape.ToString());
  return g.AddResult(
      {.kind = OpKind::kScaleChannels, .inputs = {x, scale}, .gradient = ScaleChannelsRule}, shape);
}

ValueId Normalize(Graph& g, ValueId x, const NormalizeAttributes& attributes) {
  const Shape& shape = g.shape(x);
  CAROLE_CHECK(g.value(x).dtype == DType::kU8 && shape.rank() == 4 &&
                   shape[1] <= NormalizeAttributes::kMaxChannels,
               "{}: normalization of images {} {}", g.scope(), shape.ToString(),
               Name(g.value(x).dtype));
  return g.AddResult({.kind = OpKind::kNormalize, .attributes = attributes, .inputs = {x}}, shape);
}

}  // namespace carole::ops
