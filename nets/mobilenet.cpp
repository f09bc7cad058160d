// The MobileNets that consist of inverted residual blocks, as TF-Slim defines them: v2 (Sandler et
// al. 2018), v3 (Howard et al. 2019), EdgeTPU (Gupta & Akin 2020). They differ in the tables of
// their blocks.
#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "nets/layers/layers.h"
#include "nets/nets.h"

namespace carole::nets {
namespace {

// `count` equal blocks. Only the first has the stride; the others have stride 1.
struct Blocks {
  double factor;  // channels of the expansion, divided by those of the input
  int64_t outputs;
  int64_t stride = 1;
  int64_t count = 1;
  int64_t window = 3;
  bool squeeze_excite = false;
  bool hard_swish = false;  // if false, the activation is that of the net
  bool fused = false;
  bool residual = true;
};

constexpr Blocks kV2[] = {{1, 16},       {6, 24, 2, 2},  {6, 32, 2, 3}, {6, 64, 2, 4},
                          {6, 96, 1, 3}, {6, 160, 2, 3}, {6, 320}};

constexpr Blocks kV3Large[] = {{1, 16},
                               {4, 24, 2},
                               {3, 24},
                               {3, 40, 2, 3, 5, true},
                               {6, 80, 2, 1, 3, false, true},
                               {2.5, 80, 1, 1, 3, false, true},
                               {184.0 / 80, 80, 1, 2, 3, false, true},
                               {6, 112, 1, 2, 3, true, true},
                               {6, 160, 2, 3, 5, true, true}};

constexpr Blocks kV3Small[] = {
    {1, 16, 2, 1, 3, true},       {72.0 / 16, 24, 2},           {88.0 / 24, 24},
    {4, 40, 2, 1, 5, true, true}, {6, 40, 1, 2, 5, true, true}, {3, 48, 1, 2, 5, true, true},
    {6, 96, 2, 3, 5, true, true}};

constexpr Blocks kEdgeTpu[] = {{.factor = 1, .outputs = 16, .fused = true},
                               {.factor = 8, .outputs = 32, .stride = 2, .fused = true},
                               {.factor = 4, .outputs = 32, .count = 3, .fused = true},
                               {.factor = 8, .outputs = 48, .stride = 2, .fused = true},
                               {.factor = 4, .outputs = 48, .count = 3, .fused = true},
                               {8, 96, 2},
                               {4, 96, 1, 3},
                               {.factor = 8, .outputs = 96, .residual = false},
                               {4, 96, 1, 3},
                               {8, 160, 2, 1, 5},
                               {4, 160, 1, 3, 5},
                               {8, 192}};

struct Variant {
  const char* scope;
  std::span<const Blocks> blocks;
  int64_t root;           // output channels of the first convolution
  int64_t last;           // output channels of the convolution after the blocks
  int64_t hidden = 0;     // v3: output channels of a convolution after the mean over the map
  double multiplier = 1;  // factor for all numbers of channels; `last` is never reduced
  Activation activation = Activation::kRelu;
  bool hard_swish = false;    // v3: whether the layers outside of the blocks use hard swish
  bool minimalistic = false;  // no squeeze-excite, no hard swish, every window 3x3
};

class Mobilenet {
 public:
  Mobilenet(NetBuilder& b, const Variant& variant) : b_(b), variant_(variant) {}

  NetOutput Build(ValueId x) {
    const auto scope = b_.Enter(variant_.scope);
    const LayerOptions outer = Layer(variant_.hard_swish);
    x = Conv2d(b_, x, "Conv", {.outputs = Width(variant_.root), .window = 3, .stride = 2}, outer);
    x = b_.EndPoint(NextEndPoint(), x);
    int64_t block = 0;
    for (const Blocks& row : variant_.blocks) {
      for (int64_t i = 0; i < row.count; ++i)
        x = Block(x, Numbered("expanded_conv", block++), row, i == 0 ? row.stride : 1);
    }
    x = Conv2d(b_, x, "Conv_1", {.outputs = LastWidth(), .window = 1}, outer);
    x = b_.EndPoint(NextEndPoint(), x);
    if (variant_.hidden != 0) x = Hidden(x, outer);
    for (const auto& [name, value] : inner_) b_.EndPoint(name, value);
    x = b_.EndPoint("global_pool", GlobalAveragePool(b_, x, "Logits/AvgPool"));
    return PooledHead(b_, x, "Conv2d_1c_1x1", 0.8, outer);
  }

 private:
  LayerOptions Layer(bool hard_swish) const {
    return {.weights = Initializer::TruncatedNormal(0.09),
            .l2_weights = true,
            .batch_norm = BatchNormOptions{.decay = 0.997, .gamma = true},
            .activation = hard_swish && !variant_.minimalistic ? Activation::kHardSwish
                                                               : variant_.activation};
  }

  int64_t Width(int64_t outputs) const {
    return MakeDivisible(static_cast<double>(outputs) * variant_.multiplier);
  }
  int64_t LastWidth() const {
    return MakeDivisible(static_cast<double>(variant_.last) * std::max(variant_.multiplier, 1.0));
  }
  // TF-Slim numbers the layers of a net from 1 on.
  std::string NextEndPoint() { return "layer_" + std::to_string(++layers_); }

  ValueId Block(ValueId x, const std::string& name, const Blocks& row, int64_t stride) {
    const auto inputs = static_cast<double>(b_.shape(x)[1]);
    const InvertedResidualParts parts =
        InvertedResidual(b_, x, name,
                         {.expansion = MakeDivisible(inputs * row.factor),
                          .outputs = Width(row.outputs),
                          .window = variant_.minimalistic ? 3 : row.window,
                          .stride = stride,
                          .squeeze_excite = row.squeeze_excite && !variant_.minimalistic,
                          .fused = row.fused,
                          .residual = row.residual},
                         Layer(row.hard_swish));
    const std::string layer = NextEndPoint();
    if (parts.expansion != kNone) inner_.emplace_back(layer + "/expansion_output", parts.expansion);
    if (parts.depthwise != kNone) inner_.emplace_back(layer + "/depthwise_output", parts.depthwise);
    inner_.emplace_back(layer + "/output", parts.output);
    return b_.EndPoint(layer, parts.output);
  }

  ValueId Hidden(ValueId x, const LayerOptions& outer) {
    x = b_.EndPoint(NextEndPoint(), GlobalAveragePool(b_, x, "AvgPool2D"));
    LayerOptions layer = outer.Linear();
    layer.activation = outer.activation;
    x = Conv2d(b_, x, "Conv_2", {.outputs = variant_.hidden, .window = 1}, layer);
    return b_.EndPoint(NextEndPoint(), x);
  }

  NetBuilder& b_;
  const Variant& variant_;
  int64_t layers_ = 0;
  // The end points within blocks. TF-Slim lists them after those of the layers.
  std::vector<std::pair<std::string, ValueId>> inner_;
};

NetOutput V2(NetBuilder& b, ValueId x, double multiplier) {
  const Variant variant{.scope = "MobilenetV2",
                        .blocks = kV2,
                        .root = 32,
                        .last = 1280,
                        .multiplier = multiplier,
                        .activation = Activation::kRelu6};
  return Mobilenet(b, variant).Build(x);
}

NetOutput V3(NetBuilder& b, ValueId x, std::span<const Blocks> blocks, bool minimalistic) {
  const bool large = blocks.data() == kV3Large;
  const Variant variant{.scope = "MobilenetV3",
                        .blocks = blocks,
                        .root = 16,
                        .last = large ? 960 : 576,
                        .hidden = large ? 1280 : 1024,
                        .hard_swish = true,
                        .minimalistic = minimalistic};
  return Mobilenet(b, variant).Build(x);
}

NetOutput EdgeTpu(NetBuilder& b, ValueId x, double multiplier) {
  const Variant variant{.scope = "MobilenetEdgeTPU",
                        .blocks = kEdgeTpu,
                        .root = 32,
                        .last = 1280,
                        .multiplier = multiplier};
  return Mobilenet(b, variant).Build(x);
}

}  // namespace

NetOutput MobilenetV2_100(NetBuilder& b, ValueId x) { return V2(b, x, 1); }
NetOutput MobilenetV2_140(NetBuilder& b, ValueId x) { return V2(b, x, 1.4); }
NetOutput MobilenetV2_035(NetBuilder& b, ValueId x) { return V2(b, x, 0.35); }
NetOutput MobilenetV3Large(NetBuilder& b, ValueId x) { return V3(b, x, kV3Large, false); }
NetOutput MobilenetV3Small(NetBuilder& b, ValueId x) { return V3(b, x, kV3Small, false); }
NetOutput MobilenetV3LargeMinimalistic(NetBuilder& b, ValueId x) {
  return V3(b, x, kV3Large, true);
}
NetOutput MobilenetV3SmallMinimalistic(NetBuilder& b, ValueId x) {
  return V3(b, x, kV3Small, true);
}
NetOutput MobilenetEdgeTpu(NetBuilder& b, ValueId x) { return EdgeTpu(b, x, 1); }
NetOutput MobilenetEdgeTpu_075(NetBuilder& b, ValueId x) { return EdgeTpu(b, x, 0.75); }

}  // namespace carole::nets
