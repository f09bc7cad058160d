// ResNet as TF-Slim defines it: v1 (He et al. 2015), and v2, which has batch norm and ReLU before
// the convolutions (He et al. 2016). The last unit of a block has the stride, not the first as in
// the papers.
#include <array>
#include <string>

#include "nets/layers/layers.h"
#include "nets/nets.h"
#include "src/ops/ops.h"

namespace carole::nets {
namespace {

using Units = std::array<int, 4>;  // number of units in each block
constexpr Units kUnits50{3, 4, 6, 3}, kUnits101{3, 4, 23, 3}, kUnits152{3, 8, 36, 3},
    kUnits200{3, 24, 36, 3};
// Output channels of a unit, divided by those of its 3x3 convolution.
constexpr int64_t kExpansion = 4;

LayerOptions Layer() {
  return {.weights = Initializer::He(),
          .l2_weights = true,
          .batch_norm = BatchNormOptions{.decay = 0.997, .epsilon = 1e-5, .gamma = true}};
}

// A convolution whose result is an end point.
ValueId Conv(NetBuilder& b, ValueId x, std::string_view name, const ConvGeometry& geometry,
             const LayerOptions& layer) {
  return b.ScopedEndPoint(name, Conv2d(b, x, name, geometry, layer));
}

// The shortcut of a unit that keeps the number of channels: every stride-th pixel.
ValueId Subsample(NetBuilder& b, ValueId x, int64_t stride) {
  return stride == 1 ? x : MaxPool2d(b, x, "shortcut", {.window = 1, .stride = stride});
}

// Adds a unit. `base` is the number of output channels of its 3x3 convolution.
using Unit = ValueId(NetBuilder& b, ValueId x, int64_t base, int64_t stride);

// ReLU(shortcut + conv3(conv2(conv1(x)))). All convolutions have batch norm.
ValueId UnitV1(NetBuilder& b, ValueId x, int64_t base, int64_t stride) {
  const int64_t outputs = kExpansion * base;
  LayerOptions linear = Layer();
  linear.activation = Activation::kNone;
  const ValueId shortcut =
      b.shape(x)[1] == outputs
          ? Subsample(b, x, stride)
          : Conv(b, x, "shortcut", {.outputs = outputs, .window = 1, .stride = stride}, linear);
  ValueId y = Conv(b, x, "conv1", {.outputs = base, .window = 1}, Layer());
  y = Conv(b, y, "conv2", {.outputs = base, .window = 3, .stride = stride, .pad = Pad::kFixed},
           Layer());
  y = Conv(b, y, "conv3", {.outputs = outputs, .window = 1}, linear);
  return ops::Relu(b.graph(), ops::Add(b.graph(), shortcut, y));
}

// shortcut + conv3(conv2(conv1(p))) with p = ReLU(batch norm(x)). A projection shortcut reads p.
ValueId UnitV2(NetBuilder& b, ValueId x, int64_t base, int64_t stride) {
  const int64_t outputs = kExpansion * base;
  const LayerOptions linear = Layer().Linear();
  const ValueId preact = BatchNorm(b, x, "preact", *Layer().batch_norm, Activation::kRelu);
  const ValueId shortcut = b.shape(x)[1] == outputs
                               ? Subsample(b, x, stride)
                               : Conv(b, preact, "shortcut",
                                      {.outputs = outputs, .window = 1, .stride = stride}, linear);
  ValueId y = Conv(b, preact, "conv1", {.outputs = base, .window = 1}, Layer());
  y = Conv(b, y, "conv2", {.outputs = base, .window = 3, .stride = stride, .pad = Pad::kFixed},
           Layer());
  y = Conv(b, y, "conv3", {.outputs = outputs, .window = 1}, linear);
  return ops::Add(b.graph(), shortcut, y);
}

ValueId Blocks(NetBuilder& b, ValueId x, const Units& units, Unit* unit,
               const std::string& unit_name) {
  for (int block = 0; block < 4; ++block) {
    const std::string block_name = "block" + std::to_string(block + 1);
    {
      const auto block_scope = b.Enter(block_name);
      for (int i = 0; i < units[block]; ++i) {
        const bool strided = block < 3 && i == units[block] - 1;
        const std::string name = "unit_" + std::to_string(i + 1) + "/" + unit_name;
        {
          const auto unit_scope = b.Enter(name);
          x = unit(b, x, int64_t{64} << block, strided ? 2 : 1);
        }
        b.ScopedEndPoint(name, x);
      }
    }
    b.ScopedEndPoint(block_name, x);
  }
  return x;
}

NetOutput Head(NetBuilder& b, ValueId x) {
  x = b.EndPoint("global_pool", GlobalAveragePool(b, x, "pool5"));
  x = Conv(b, x, "logits", {.outputs = b.num_classes(), .window = 1}, Layer().Linear());
  const ValueId logits = b.ScopedEndPoint("spatial_squeeze", Squeeze(b, x, "spatial_squeeze"));
  return {.logits = logits,
          .predictions = b.EndPoint("predictions", Softmax(b, logits, "predictions"))};
}

ConvGeometry Root() { return {.outputs = 64, .window = 7, .stride = 2, .pad = Pad::kFixed}; }
PoolGeometry RootPool() { return {.window = 3, .stride = 2, .pad = Pad::kSame}; }

NetOutput ResnetV1(NetBuilder& b, ValueId x, const char* name, const Units& units) {
  const auto scope = b.Enter(name);
  x = MaxPool2d(b, Conv(b, x, "conv1", Root(), Layer()), "pool1", RootPool());
  return Head(b, Blocks(b, x, units, UnitV1, "bottleneck_v1"));
}

NetOutput ResnetV2(NetBuilder& b, ValueId x, const char* name, const Units& units) {
  const auto scope = b.Enter(name);
  x = MaxPool2d(b, Conv(b, x, "conv1", Root(), Layer().Linear()), "pool1", RootPool());
  x = Blocks(b, x, units, UnitV2, "bottleneck_v2");
  return Head(b, BatchNorm(b, x, "postnorm", *Layer().batch_norm, Activation::kRelu));
}

}  // namespace

NetOutput ResnetV1_50(NetBuilder& b, ValueId x) { return ResnetV1(b, x, "resnet_v1_50", kUnits50); }
NetOutput ResnetV1_101(NetBuilder& b, ValueId x) {
  return ResnetV1(b, x, "resnet_v1_101", kUnits101);
}
NetOutput ResnetV1_152(NetBuilder& b, ValueId x) {
  return ResnetV1(b, x, "resnet_v1_152", kUnits152);
}
NetOutput ResnetV1_200(NetBuilder& b, ValueId x) {
  return ResnetV1(b, x, "resnet_v1_200", kUnits200);
}
NetOutput ResnetV2_50(NetBuilder& b, ValueId x) { return ResnetV2(b, x, "resnet_v2_50", kUnits50); }
NetOutput ResnetV2_101(NetBuilder& b, ValueId x) {
  return ResnetV2(b, x, "resnet_v2_101", kUnits101);
}
NetOutput ResnetV2_152(NetBuilder& b, ValueId x) {
  return ResnetV2(b, x, "resnet_v2_152", kUnits152);
}
NetOutput ResnetV2_200(NetBuilder& b, ValueId x) {
  return ResnetV2(b, x, "resnet_v2_200", kUnits200);
}

}  // namespace carole::nets
