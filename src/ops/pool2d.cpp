// Pooling and local response normalization (ops.h): shape inference and gradient rules.
#include "src/ops/image_size.h"
#include "src/ops/ops.h"

namespace carole::ops {
namespace {

std::vector<ValueId> Pool2dGradient(const GradientArgs& args) {
  Graph& g = args.graph;
  return {g.AddResult({.kind = OpKind::kPool2dBackward,
                       .attributes = args.node.attributes,
                       .inputs = {args.dy[0], args.node.outputs[1]}},
                      g.shape(args.node.inputs[0]))};
}

std::vector<ValueId> LrnGradient(const GradientArgs& args) {
  Graph& g = args.graph;
  const ValueId x = args.node.inputs[0];
  return {g.AddResult(
      {.kind = OpKind::kLrnBackward, .attributes = args.node.attributes, .inputs = {args.dy[0], x}},
      g.shape(x))};
}

}  // namespace

ValueId Pool2d(Graph& g, ValueId x, const Pool2dAttributes& a, bool training) {
  const Shape& in = g.shape(x);
  const int64_t p = WindowOutput(in[2], a.padding.top, a.padding.bottom, a.window_h, a.stride_h);
  const int64_t q = WindowOutput(in[3], a.padding.left, a.padding.right, a.window_w, a.stride_w);
  CheckImageSize(g, in, p, q, a.window_h, a.window_w);
  const Shape out{in[0], in[1], p, q};
  const bool argmax = training && a.mode == Pool2dAttributes::Mode::kMax;
  return g
      .AddNode(
          {.kind = OpKind::kPool2d, .attributes = a, .inputs = {x}, .gradient = Pool2dGradient},
          {{out, g.compute()}, {out, DType::kI32, argmax}})
      .outputs[0];
}

ValueId Lrn(Graph& g, ValueId x, const LrnAttributes& attributes) {
  return g.AddResult(
      {.kind = OpKind::kLrn, .attributes = attributes, .inputs = {x}, .gradient = LrnGradient},
      g.shape(x));
}

}  // namespace carole::ops
