// Pooling (ops.h): shape inference.
#include "src/ops/gradients.h"
#include "src/ops/image_size.h"
#include "src/ops/ops.h"

namespace carole::ops {

ValueId Pool2d(Graph& g, ValueId x, const Pool2dAttributes& a, bool training) {
  const Shape& in = g.shape(x);
  const int64_t p = WindowOutput(in[2], a.padding.top, a.padding.bottom, a.window_h, a.stride_h);
  const int64_t q = WindowOutput(in[3], a.padding.left, a.padding.right, a.window_w, a.stride_w);
  CheckImageSize(g, in, p, q, a.window_h, a.window_w);
  const Shape out{in[0], in[1], p, q};
  const bool argmax = training && a.mode == Pool2dAttributes::Mode::kMax;
  return g
      .AddNode({.kind = op::kPool2d, .attributes = a, .inputs = {x}, .gradient = GradientByNames},
               {{out, g.compute()}, {out, DType::kI32, argmax}})
      .outputs[0];
}

}  // namespace carole::ops
