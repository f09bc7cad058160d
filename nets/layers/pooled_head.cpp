// PooledHead() of layers.h.
#include "nets/layers/layers.h"

namespace carole::nets {

NetOutput PooledHead(NetBuilder& b, ValueId x, std::string_view name, double keep,
                     const LayerOptions& layer) {
  {
    const auto scope = b.Enter("Logits");
    x = Dropout(b, x, "Dropout", keep);
    x = Conv2d(b, x, name, {.outputs = b.num_classes(), .window = 1}, layer.Linear());
    x = Squeeze(b, x, "SpatialSqueeze");
  }
  const ValueId logits = b.EndPoint("Logits", x);
  return {.logits = logits,
          .predictions = b.EndPoint("Predictions", Softmax(b, logits, "Predictions"))};
}

}  // namespace carole::nets
