// The ImageNet ResNet of TensorFlow's official models (v2, full pre-activation), with its names.
// Convolutions and batch norms have running numbers through the whole net. Differences from
// TF-Slim's ResNets:
// - The first block of each block layer has the stride and a projection shortcut.
// - Only the last layer has a bias.
// - All trainable variables have L2 regularization.
#include <array>
#include <cmath>
#include <string>

#include "nets/layers/layers.h"
#include "nets/nets.h"
#include "src/ops/ops.h"

namespace carole::nets {
namespace {

struct Variant {
  bool bottleneck;
  std::array<int, 4> blocks;  // in each block layer
};

constexpr BatchNormOptions kNorm{.decay = 0.997, .epsilon = 1e-5, .gamma = true, .l2 = true};

class ImagenetResnet {
 public:
  ImagenetResnet(NetBuilder& b, const Variant& variant) : b_(b), variant_(variant) {}

  NetOutput Build(ValueId x) {
    const auto scope = b_.Enter("resnet");
    x = b_.EndPoint("initial_conv", Conv(x, 64, 7, 2));
    x = b_.EndPoint("initial_max_pool",
                    MaxPool2d(b_, x, "initial_max_pool", {.window = 3, .pad = Pad::kSame}));
    for (size_t layer = 0; layer < variant_.blocks.size(); ++layer) {
      const int64_t width = int64_t{64} << layer;
      x = Block(x, width, layer == 0 ? 1 : 2, true);
      for (int i = 1; i < variant_.blocks[layer]; ++i) x = Block(x, width, 1, false);
      b_.EndPoint("block_layer" + std::to_string(layer + 1), x);
    }
    x = b_.EndPoint("final_avg_pool", GlobalAveragePool(b_, Norm(x), "final_avg_pool"));
    const LayerOptions dense{.l2_weights = true,
                             .l2_biases = true,
                             .weights_name = "kernel",
                             .biases_name = "bias",
                             .activation = Activation::kNone};
    x = FullyConnected(b_, Squeeze(b_, x, "flatten"), "dense", b_.num_classes(), dense);
    return {.logits = b_.EndPoint("final_dense", x)};
  }

 private:
  // The initial weights have a standard deviation of 1/sqrt(fan_in) before truncation, as in
  // TensorFlow 1.4.
  ValueId Conv(ValueId x, int64_t outputs, int64_t window, int64_t stride = 1) {
    const double fan_in = static_cast<double>(window * window * b_.shape(x)[1]);
    const LayerOptions layer{.weights = Initializer::TruncatedNormal(1 / std::sqrt(fan_in)),
                             .l2_weights = true,
                             .has_biases = false,
                             .weights_name = "kernel",
                             .activation = Activation::kNone};
    return Conv2d(b_, x, Numbered("conv2d", convs_++),
                  {.outputs = outputs,
                   .window = window,
                   .stride = stride,
                   .pad = stride > 1 ? Pad::kFixed : Pad::kSame},
                  layer);
  }

  ValueId Norm(ValueId x) {
    return BatchNorm(b_, x, Numbered("batch_normalization", norms_++), kNorm, Activation::kRelu);
  }

  // Returns shortcut + branch(p), with p = ReLU(batch norm(x)). The shortcut is x, or a projection
  // of p.
  ValueId Block(ValueId x, int64_t width, int64_t stride, bool project) {
    const int64_t outputs = variant_.bottleneck ? 4 * width : width;
    const ValueId p = Norm(x);
    const ValueId shortcut = project ? Conv(p, outputs, 1, stride) : x;
    ValueId y = p;
    if (variant_.bottleneck) {
      y = Norm(Conv(y, width, 1));
      y = Norm(Conv(y, width, 3, stride));
      y = Conv(y, outputs, 1);
    } else {
      y = Norm(Conv(y, width, 3, stride));
      y = Conv(y, outputs, 3);
    }
    const auto scope = b_.Enter(Numbered("add", adds_++));
    return ops::Add(b_.graph(), shortcut, y);
  }

  NetBuilder& b_;
  const Variant variant_;
  int convs_ = 0;
  int norms_ = 0;
  int adds_ = 0;
};

NetOutput Build(NetBuilder& b, ValueId x, const Variant& variant) {
  return ImagenetResnet(b, variant).Build(x);
}

}  // namespace

NetOutput ImagenetResnetV2_18(NetBuilder& b, ValueId x) {
  return Build(b, x, {false, {2, 2, 2, 2}});
}
NetOutput ImagenetResnetV2_34(NetBuilder& b, ValueId x) {
  return Build(b, x, {false, {3, 4, 6, 3}});
}
NetOutput ImagenetResnetV2_50(NetBuilder& b, ValueId x) {
  return Build(b, x, {true, {3, 4, 6, 3}});
}
NetOutput ImagenetResnetV2_101(NetBuilder& b, ValueId x) {
  return Build(b, x, {true, {3, 4, 23, 3}});
}
NetOutput ImagenetResnetV2_152(NetBuilder& b, ValueId x) {
  return Build(b, x, {true, {3, 8, 36, 3}});
}
NetOutput ImagenetResnetV2_200(NetBuilder& b, ValueId x) {
  return Build(b, x, {true, {3, 24, 36, 3}});
}

}  // namespace carole::nets
