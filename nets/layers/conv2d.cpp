// Conv2d() and PaddingOf() of layers.h.
#include <algorithm>

#include "nets/layers/layers.h"
#include "src/core/divide_up.h"
#include "src/ops/ops.h"

namespace carole::nets {
namespace {

// Returns the pixels before and after a row of n pixels.
std::pair<int64_t, int64_t> RowPadding(int64_t n, Pad pad, int64_t window, int64_t stride) {
  int64_t total = 0;
  if (pad == Pad::kFixed) total = window - 1;
  if (pad == Pad::kSame) {
    const int64_t outputs = DivideUp(n, stride);
    total = std::max<int64_t>((outputs - 1) * stride + window - n, 0);
  }
  return {total / 2, total - total / 2};
}

}  // namespace

Padding PaddingOf(const Shape& image, Pad pad, Window window, int64_t stride) {
  const auto [top, bottom] = RowPadding(image[2], pad, window.h, stride);
  const auto [left, right] = RowPadding(image[3], pad, window.w, stride);
  return {.top = top, .left = left, .bottom = bottom, .right = right};
}

ValueId Conv2d(NetBuilder& b, ValueId x, std::string_view name, const ConvGeometry& geometry,
               const LayerOptions& options) {
  const auto scope = b.Enter(name);
  const int64_t inputs = b.shape(x)[1];
  const auto [r, s] = geometry.window;
  const ValueId w = b.AddVariable({.name = options.weights_name,
                                   .tf_shape = {r, s, inputs, geometry.outputs},
                                   .shape = {geometry.outputs, inputs, r, s},
                                   .initializer = options.weights,
                                   .l2_regularized = options.l2_weights});
  const Conv2dAttributes attributes{
      .stride_h = geometry.stride,
      .stride_w = geometry.stride,
      .padding = PaddingOf(b.shape(x), geometry.pad, geometry.window, geometry.stride),
      .exact = options.exact};
  const ValueId y =
      ops::Conv2d(b.graph(), x, w, AddBiases(b, geometry.outputs, options), attributes);
  return NormalizeAndActivate(b, y, options);
}

}  // namespace carole::nets
