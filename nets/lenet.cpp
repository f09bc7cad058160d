// LeNet as TF-Slim defines it (after LeCun et al. 1998, with ReLU and max pooling). README.md
// explains this file line by line.
#include "nets/layers/layers.h"
#include "nets/nets.h"

namespace carole::nets {

NetOutput LeNet(NetBuilder& b, ValueId x) {
  const LayerOptions layer{.weights = Initializer::TruncatedNormal(0.1), .l2_weights = true};
  ValueId logits;
  {
    const auto scope = b.Enter("LeNet");
    x = b.EndPoint("conv1", Conv2d(b, x, "conv1", {.outputs = 32, .window = 5}, layer));
    x = b.EndPoint("pool1", MaxPool2d(b, x, "pool1", {.window = 2}));
    x = b.EndPoint("conv2", Conv2d(b, x, "conv2", {.outputs = 64, .window = 5}, layer));
    x = b.EndPoint("pool2", MaxPool2d(b, x, "pool2", {.window = 2}));
    x = b.EndPoint("Flatten", Flatten(b, x, "Flatten"));
    x = b.EndPoint("fc3", FullyConnected(b, x, "fc3", 1024, layer));
    x = b.EndPoint("dropout3", Dropout(b, x, "dropout3"));
    logits = b.EndPoint("Logits", FullyConnected(b, x, "fc4", b.num_classes(), layer.Linear()));
  }
  return {.logits = logits,
          .predictions = b.EndPoint("Predictions", Softmax(b, logits, "Predictions"))};
}

}  // namespace carole::nets
