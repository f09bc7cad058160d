// SeparableConv2d() of layers.h.
#include "nets/layers/layers.h"
#include "src/ops/ops.h"

namespace carole::nets {
namespace {

ValueId Depthwise(NetBuilder& b, ValueId x, const SeparableGeometry& geometry,
                  const LayerOptions& options) {
  const auto [r, s] = geometry.window;
  const int64_t inputs = b.shape(x)[1], outputs = inputs * geometry.multiplier;
  const ValueId w = b.AddVariable({.name = "depthwise_weights",
                                   .tf_shape = {r, s, inputs, geometry.multiplier},
                                   .shape = {outputs, 1, r, s},
                                   .initializer = options.weights,
                                   .l2_regularized = options.l2_weights});
  const Conv2dAttributes attributes{
      .stride_h = geometry.stride,
      .stride_w = geometry.stride,
      .padding = PaddingOf(b.shape(x), geometry.pad, geometry.window, geometry.stride),
      .groups = inputs};
  const ValueId bias = geometry.outputs == 0 ? AddBiases(b, outputs, options) : kNone;
  return ops::Conv2d(b.graph(), x, w, bias, attributes);
}

ValueId Pointwise(NetBuilder& b, ValueId x, int64_t outputs, const LayerOptions& options) {
  const int64_t inputs = b.shape(x)[1];
  const ValueId w = b.AddVariable({.name = "pointwise_weights",
                                   .tf_shape = {1, 1, inputs, outputs},
                                   .shape = {outputs, inputs, 1, 1},
                                   .initializer = options.weights,
                                   .l2_regularized = options.l2_weights});
  return ops::Conv2d(b.graph(), x, w, AddBiases(b, outputs, options), {});
}

}  // namespace

ValueId SeparableConv2d(NetBuilder& b, ValueId x, std::string_view name,
                        const SeparableGeometry& geometry, const LayerOptions& options) {
  const auto scope = b.Enter(name);
  x = Depthwise(b, x, geometry, options);
  if (geometry.outputs != 0) x = Pointwise(b, x, geometry.outputs, options);
  return NormalizeAndActivate(b, x, options);
}

}  // namespace carole::nets
