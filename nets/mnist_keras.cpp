// The two MNIST nets of TensorFlow's Keras tutorials, with the names and initializers of Keras: a
// dense net, and the convolutional net of the tutorial on distributed training. Neither has
// regularization.
#include "nets/layers/layers.h"
#include "nets/nets.h"

namespace carole::nets {
namespace {

LayerOptions Layer() { return {.weights_name = "kernel", .biases_name = "bias"}; }

ValueId Conv(NetBuilder& b, ValueId x, const char* name, int64_t outputs) {
  const ConvGeometry geometry{.outputs = outputs, .window = 3, .pad = Pad::kValid};
  return b.EndPoint(name, Conv2d(b, x, name, geometry, Layer()));
}

ValueId Pool(NetBuilder& b, ValueId x, const char* name) {
  return b.EndPoint(name, MaxPool2d(b, x, name, {.window = 2}));
}

ValueId Dense(NetBuilder& b, ValueId x, int64_t outputs) {
  return b.EndPoint("dense", FullyConnected(b, x, "dense", outputs, Layer()));
}

// In Keras the last layer is the softmax. Its cross-entropy uses the logits from before the
// softmax, as we do.
NetOutput Head(NetBuilder& b, ValueId x) {
  const ValueId logits = FullyConnected(b, x, "dense_1", b.num_classes(), Layer().Linear());
  return {.logits = logits,
          .predictions = b.EndPoint("dense_1", Softmax(b, logits, "dense_1/softmax"))};
}

}  // namespace

NetOutput MnistKeras(NetBuilder& b, ValueId x) {
  x = b.EndPoint("flatten", Flatten(b, x, "flatten"));
  x = Dense(b, x, 512);
  x = b.EndPoint("dropout", Dropout(b, x, "dropout", 0.8));
  return Head(b, x);
}

NetOutput MnistKerasDist(NetBuilder& b, ValueId x) {
  x = Conv(b, x, "conv2d", 32);
  x = Pool(b, x, "max_pooling2d");
  x = Conv(b, x, "conv2d_1", 64);
  x = Pool(b, x, "max_pooling2d_1");
  x = Conv(b, x, "conv2d_2", 64);
  x = b.EndPoint("flatten", Flatten(b, x, "flatten"));
  return Head(b, Dense(b, x, 64));
}

}  // namespace carole::nets
