// Scaling by a constant and by channel, and normalization of input images (ops.h): shape inference
// and gradient rules.
#include "src/backend/ops/add.h"
#include "src/backend/ops/scale_channels.h"
#include "src/core/check.h"
#include "src/ops/ops.h"

namespace carole::ops {
namespace {

std::vector<ValueId> ScaleRule(const GradientArgs& args) {
  return {Scale(args.graph, args.dy[0], args.node.attributes.as<ScaleAttributes>().factor)};
}

std::vector<ValueId> ScaledAddRule(const GradientArgs& args) {
  const double factor = args.node.attributes.as<ScaleAttributes>().factor;
  return {args.wanted[0] ? args.dy[0] : kNone,
          args.wanted[1] ? Scale(args.graph, args.dy[0], factor) : kNone};
}

}  // namespace

ValueId Scale(Graph& g, ValueId x, double factor) {
  return g.AddResult({.kind = op::kScale,
                      .attributes = ScaleAttributes{factor},
                      .inputs = {x},
                      .gradient = ScaleRule},
                     g.shape(x));
}

ValueId ScaledAdd(Graph& g, ValueId a, ValueId b, double factor) {
  CAROLE_CHECK_EQ(g.shape(a), g.shape(b), "{}: scaled add", g.scope());
  return g.AddResult({.kind = op::kScaledAdd,
                      .attributes = ScaleAttributes{factor},
                      .inputs = {a, b},
                      .gradient = ScaledAddRule},
                     g.shape(a));
}

ValueId ScaleChannels(Graph& g, ValueId x, ValueId scale) {
  return Append(g, op::kScaleChannels, {}, {x, scale});
}

ValueId Normalize(Graph& g, ValueId x, const NormalizeAttributes& attributes) {
  const Shape& shape = g.shape(x);
  CAROLE_CHECK(g.value(x).dtype == DType::kU8 && shape.rank() == 4 &&
                   shape[1] <= NormalizeAttributes::kMaxChannels,
               "{}: normalization of images {} {}", g.scope(), shape.ToString(),
               Name(g.value(x).dtype));
  return g.AddResult({.kind = op::kNormalize, .attributes = attributes, .inputs = {x}}, shape);
}

}  // namespace carole::ops
