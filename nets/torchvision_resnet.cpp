// ResNet-50 v1.5 as torchvision defines it: He et al. 2015, but the 3x3 convolution of a unit has
// the stride, not the first 1x1 convolution. MLPerf trains this net. It needs 17 % more
// multiplications than TF-Slim's resnet_v1_50.
//
// Names follow PyTorch's state_dict, with slashes for dots and TensorFlow's last parts:
// layer1.0.bn1.weight is layer1/0/bn1/gamma.
#include <array>
#include <cmath>
#include <string>

#include "nets/layers/layers.h"
#include "nets/nets.h"
#include "src/ops/ops.h"

namespace carole::nets {
namespace {

constexpr int64_t kExpansion = 4;  // output channels of a unit, divided by those of its 3x3 one
constexpr std::array<int, 4> kUnits50{3, 4, 6, 3};

// PyTorch updates with momentum 0.1 and does not raise epsilon.
constexpr BatchNormOptions kNorm{
    .decay = 0.9, .epsilon = 1e-5, .gamma = true, .raise_epsilon = false};

ValueId Conv(NetBuilder& b, ValueId x, const char* name, const ConvGeometry& geometry) {
  return Conv2d(b, x, name, geometry,
                {.weights = Initializer::HeOut(),
                 .l2_weights = true,
                 .has_biases = false,
                 .activation = Activation::kNone});
}

// ReLU(shortcut + bn3(conv3(...))). The first unit of a layer projects its shortcut.
ValueId Unit(NetBuilder& b, ValueId x, int64_t width, int64_t stride, bool projects) {
  const int64_t outputs = kExpansion * width;
  ValueId y = Conv(b, x, "conv1", {.outputs = width, .window = 1});
  y = BatchNorm(b, y, "bn1", kNorm, Activation::kRelu);
  y = Conv(b, y, "conv2", {.outputs = width, .window = 3, .stride = stride, .pad = Pad::kFixed});
  y = BatchNorm(b, y, "bn2", kNorm, Activation::kRelu);
  y = BatchNorm(b, Conv(b, y, "conv3", {.outputs = outputs, .window = 1}), "bn3", kNorm);
  ValueId shortcut = x;
  if (projects) {
    const auto scope = b.Enter("downsample");
    shortcut = Conv(b, x, "0", {.outputs = outputs, .window = 1, .stride = stride});
    shortcut = BatchNorm(b, shortcut, "1", kNorm);
  }
  return ops::Relu(b.graph(), ops::Add(b.graph(), y, shortcut));
}

}  // namespace

NetOutput Resnet50(NetBuilder& b, ValueId x) {
  x = Conv(b, x, "conv1", {.outputs = 64, .window = 7, .stride = 2, .pad = Pad::kFixed});
  x = b.EndPoint("relu", BatchNorm(b, x, "bn1", kNorm, Activation::kRelu));
  x = b.EndPoint("maxpool",
                 MaxPool2d(b, x, "maxpool", {.window = 3, .stride = 2, .pad = Pad::kFixed}));
  for (size_t layer = 0; layer < kUnits50.size(); ++layer) {
    const auto layer_scope = b.Enter("layer" + std::to_string(layer + 1));
    for (int i = 0; i < kUnits50[layer]; ++i) {
      {
        const auto unit_scope = b.Enter(std::to_string(i));
        x = Unit(b, x, int64_t{64} << layer, i == 0 && layer > 0 ? 2 : 1, i == 0);
      }
      b.ScopedEndPoint(std::to_string(i), x);
    }
  }
  x = b.EndPoint("avgpool", GlobalAveragePool(b, x, "avgpool"));
  x = Squeeze(b, x, "flatten");
  // The standard deviation of PyTorch's uniform numbers within +-1 / sqrt(inputs).
  const double deviation = 1 / std::sqrt(3.0 * static_cast<double>(b.shape(x)[1]));
  return {.logits = FullyConnected(b, x, "fc", b.num_classes(),
                                   {.weights = Initializer::TruncatedNormal(deviation),
                                    .l2_weights = true,
                                    .activation = Activation::kNone})};
}

}  // namespace carole::nets
