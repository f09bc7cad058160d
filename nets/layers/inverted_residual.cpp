// InvertedResidual() and SqueezeExcite() of layers.h.
#include <algorithm>
#include <cmath>

#include "nets/layers/layers.h"
#include "src/ops/ops.h"

namespace carole::nets {

int64_t MakeDivisible(double value) {
  constexpr int64_t kDivisor = 8;
  const auto nearest = static_cast<int64_t>(std::floor(value + kDivisor / 2.0));
  const int64_t rounded = std::max(kDivisor, nearest / kDivisor * kDivisor);
  return static_cast<double>(rounded) < 0.9 * value ? rounded + kDivisor : rounded;
}

ValueId SqueezeExcite(NetBuilder& b, ValueId x, std::string_view name, const LayerOptions& layer) {
  const auto scope = b.Enter(name);
  const int64_t channels = b.shape(x)[1];
  LayerOptions squeeze = layer.Linear(), excite = layer.Linear();
  squeeze.activation = Activation::kRelu;
  excite.activation = Activation::kHardSigmoid;
  ValueId gate = GlobalAveragePool(b, x, "AvgPool");
  gate =
      Conv2d(b, gate, "Conv",
             {.outputs = MakeDivisible(static_cast<double>(channels) / 4), .window = 1}, squeeze);
  gate = Conv2d(b, gate, "Conv_1", {.outputs = channels, .window = 1}, excite);
  return ops::ScaleChannels(b.graph(), x, gate);
}

InvertedResidualParts InvertedResidual(NetBuilder& b, ValueId x, std::string_view name,
                                       const InvertedResidualGeometry& geometry,
                                       const LayerOptions& layer) {
  const auto scope = b.Enter(name);
  const auto& [expansion, outputs, window, stride, squeeze_excite, fused, residual] = geometry;
  InvertedResidualParts parts;
  ValueId y = x;
  if (expansion > b.shape(x)[1]) {
    const ConvGeometry expand =
        fused ? ConvGeometry{.outputs = expansion, .window = window, .stride = stride}
              : ConvGeometry{.outputs = expansion, .window = 1};
    y = parts.expansion = Conv2d(b, y, "expand", expand, layer);
  }
  if (!fused) {
    LayerOptions depthwise = layer;
    depthwise.l2_weights = false;
    y = parts.depthwise = SeparableConv2d(
        b, y, "depthwise", {.outputs = 0, .window = window, .stride = stride}, depthwise);
  }
  if (squeeze_excite) y = SqueezeExcite(b, y, "squeeze_excite", layer);
  LayerOptions linear = layer;
  linear.activation = Activation::kNone;
  y = Conv2d(b, y, "project", {.outputs = outputs, .window = 1}, linear);
  if (residual && stride == 1 && b.shape(y) == b.shape(x)) y = ops::Add(b.graph(), y, x);
  parts.output = y;
  return parts;
}

}  // namespace carole::nets
