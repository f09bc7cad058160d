// ConvolutionalHead() of layers.h.
#include "nets/layers/layers.h"

namespace carole::nets {

NetOutput ConvolutionalHead(NetBuilder& b, ValueId x, const DenseGeometry& geometry,
                            const LayerOptions& dense, const LayerOptions& last) {
  const ConvGeometry fc6{.outputs = geometry.fc6, .window = geometry.window, .pad = Pad::kValid};
  x = b.ScopedEndPoint("fc6", Conv2d(b, x, "fc6", fc6, dense));
  x = Dropout(b, x, "dropout6");
  x = b.ScopedEndPoint("fc7", Conv2d(b, x, "fc7", {.outputs = geometry.fc7, .window = 1}, dense));
  x = Dropout(b, x, "dropout7");
  x = Conv2d(b, x, "fc8", {.outputs = b.num_classes(), .window = 1}, last);
  return {.logits = b.ScopedEndPoint("fc8", Squeeze(b, x, "fc8/squeezed"))};
}

}  // namespace carole::nets
