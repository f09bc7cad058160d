// CifarNet as TF-Slim defines it (after Krizhevsky's cuda-convnet). Only the two hidden dense
// layers have L2 regularization.
#include "nets/layers/layers.h"
#include "nets/nets.h"

namespace carole::nets {

NetOutput CifarNet(NetBuilder& b, ValueId x) {
  const LayerOptions conv{.weights = Initializer::TruncatedNormal(0.05)};
  const LayerOptions dense{.weights = Initializer::TruncatedNormal(0.04),
                           .biases = Initializer::Constant(0.1),
                           .l2_weights = true};
  const LayerOptions last{.weights = Initializer::TruncatedNormal(1.0 / 192),
                          .activation = Activation::kNone};
  const auto scope = b.Enter("CifarNet");
  x = b.EndPoint("conv1", Conv2d(b, x, "conv1", {.outputs = 64, .window = 5}, conv));
  x = b.EndPoint("pool1", MaxPool2d(b, x, "pool1", {.window = 2}));
  x = Lrn(b, x, "norm1");
  x = b.EndPoint("conv2", Conv2d(b, x, "conv2", {.outputs = 64, .window = 5}, conv));
  x = Lrn(b, x, "norm2");
  x = b.EndPoint("pool2", MaxPool2d(b, x, "pool2", {.window = 2}));
  x = b.EndPoint("Flatten", Flatten(b, x, "Flatten"));
  x = b.EndPoint("fc3", FullyConnected(b, x, "fc3", 384, dense));
  x = Dropout(b, x, "dropout3");
  x = b.EndPoint("fc4", FullyConnected(b, x, "fc4", 192, dense));
  const ValueId logits =
      b.EndPoint("Logits", FullyConnected(b, x, "logits", b.num_classes(), last));
  return {.logits = logits,
          .predictions = b.EndPoint("Predictions", Softmax(b, logits, "Predictions"))};
}

}  // namespace carole::nets
