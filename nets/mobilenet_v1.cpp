// MobileNet v1 (Howard et al. 2017) as TF-Slim defines it: depthwise and pointwise convolutions
// alternate. Numbers of channels are truncated to an integer. Later MobileNets round them to a
// multiple of 8.
#include <algorithm>
#include <array>
#include <string>

#include "nets/layers/layers.h"
#include "nets/nets.h"

namespace carole::nets {
namespace {

// A depthwise convolution with this stride, and a pointwise convolution with this many outputs.
struct Pair {
  int64_t outputs, stride;
};
constexpr std::array<Pair, 13> kPairs{{{64, 1},
                                       {128, 2},
                                       {128, 1},
                                       {256, 2},
                                       {256, 1},
                                       {512, 2},
                                       {512, 1},
                                       {512, 1},
                                       {512, 1},
                                       {512, 1},
                                       {512, 1},
                                       {1024, 2},
                                       {1024, 1}}};

int64_t Width(int64_t outputs, double multiplier) {
  return std::max<int64_t>(static_cast<int64_t>(static_cast<double>(outputs) * multiplier), 8);
}

NetOutput MobilenetV1(NetBuilder& b, ValueId x, double multiplier) {
  const LayerOptions layer{.weights = Initializer::TruncatedNormal(0.09),
                           .l2_weights = true,
                           .batch_norm = BatchNormOptions{.decay = 0.9997, .gamma = true},
                           .activation = Activation::kRelu6};
  LayerOptions depthwise = layer;
  depthwise.l2_weights = false;
  const auto scope = b.Enter("MobilenetV1");
  const ConvGeometry root{.outputs = Width(32, multiplier), .window = 3, .stride = 2};
  x = b.EndPoint("Conv2d_0", Conv2d(b, x, "Conv2d_0", root, layer));
  for (size_t i = 0; i < kPairs.size(); ++i) {
    const auto [outputs, stride] = kPairs[i];
    const std::string name = "Conv2d_" + std::to_string(i + 1);
    const SeparableGeometry window{.outputs = 0, .window = 3, .stride = stride};
    x = SeparableConv2d(b, x, name + "_depthwise", window, depthwise);
    b.EndPoint(name + "_depthwise", x);
    const ConvGeometry pointwise{.outputs = Width(outputs, multiplier), .window = 1};
    x = Conv2d(b, x, name + "_pointwise", pointwise, layer);
    b.EndPoint(name + "_pointwise", x);
  }
  // If the map has 8x8 pixels, its last row and column are not used.
  const Window window = std::min<int64_t>(7, b.shape(x)[2]);
  x = b.EndPoint("AvgPool_1a", AveragePool2d(b, x, "Logits/AvgPool_1a", {.window = window}));
  return PooledHead(b, x, "Conv2d_1c_1x1", 0.999, layer);
}

}  // namespace

NetOutput MobilenetV1_100(NetBuilder& b, ValueId x) { return MobilenetV1(b, x, 1); }
NetOutput MobilenetV1_075(NetBuilder& b, ValueId x) { return MobilenetV1(b, x, 0.75); }
NetOutput MobilenetV1_050(NetBuilder& b, ValueId x) { return MobilenetV1(b, x, 0.5); }
NetOutput MobilenetV1_025(NetBuilder& b, ValueId x) { return MobilenetV1(b, x, 0.25); }

}  // namespace carole::nets
