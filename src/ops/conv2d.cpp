// Convolution (ops.h): shape inference and gradient rule.
#include "src/core/check.h"
#include "src/ops/gradients.h"
#include "src/ops/image_size.h"
#include "src/ops/ops.h"

namespace carole::ops {
namespace {

std::vector<ValueId> Gradient(const GradientArgs& args) {
  Conv2dAttributes backward = args.node.attributes.as<Conv2dAttributes>();
  const bool relu = backward.relu;
  backward.relu = false;
  return ConvOrLinearGradient(args, relu, backward, op::kConv2dBackwardFilter,
                              op::kConv2dBackwardData);
}

}  // namespace

ValueId Conv2d(Graph& g, ValueId x, ValueId w, ValueId bias, const Conv2dAttributes& a) {
  const Shape& in = g.shape(x);
  const Shape& filter = g.shape(w);
  CAROLE_CHECK(in.rank() == 4 && filter.rank() == 4, "{}: conv2d of {} with {}", g.scope(),
               in.ToString(), filter.ToString());
  CAROLE_CHECK_EQ(in[1], filter[1] * a.groups, "{}: channels of the input", g.scope());
  const int64_t span_h = (filter[2] - 1) * a.dilation + 1,
                span_w = (filter[3] - 1) * a.dilation + 1;
  const int64_t p = WindowOutput(in[2], a.padding.top, a.padding.bottom, span_h, a.stride_h);
  const int64_t q = WindowOutput(in[3], a.padding.left, a.padding.right, span_w, a.stride_w);
  CheckImageSize(g, in, p, q, span_h, span_w);
  return g.AddResult(
      {.kind = op::kConv2d, .attributes = a, .inputs = {x, w, bias, kNone}, .gradient = Gradient},
      {in[0], filter[0], p, q});
}

}  // namespace carole::ops
