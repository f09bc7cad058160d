// The pooling layers of layers.h.
#include "nets/layers/layers.h"
#include "src/ops/ops.h"

namespace carole::nets {
namespace {

using Mode = Pool2dAttributes::Mode;

ValueId Pool(NetBuilder& b, ValueId x, std::string_view name, const PoolGeometry& geometry,
             Mode mode) {
  const auto scope = b.Enter(name);
  const auto& [window, stride, pad] = geometry;
  const Pool2dAttributes attributes{.mode = mode,
                                    .window_h = window.h,
                                    .window_w = window.w,
                                    .stride_h = stride,
                                    .stride_w = stride,
                                    .padding = PaddingOf(b.shape(x), pad, window, stride)};
  return ops::Pool2d(b.graph(), x, attributes, b.is_training());
}

}  // namespace

ValueId MaxPool2d(NetBuilder& b, ValueId x, std::string_view name, const PoolGeometry& geometry) {
  return Pool(b, x, name, geometry, Mode::kMax);
}

ValueId AveragePool2d(NetBuilder& b, ValueId x, std::string_view name,
                      const PoolGeometry& geometry) {
  return Pool(b, x, name, geometry, Mode::kAverage);
}

ValueId GlobalAveragePool(NetBuilder& b, ValueId x, std::string_view name) {
  const Window map(b.shape(x)[2], b.shape(x)[3]);
  return Pool(b, x, name, {.window = map, .stride = 1, .pad = Pad::kValid}, Mode::kAverage);
}

}  // namespace carole::nets
