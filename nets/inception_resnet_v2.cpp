// Inception-ResNet v2 (Szegedy et al. 2016) as TF-Slim defines it: Inception blocks whose result is
// scaled and added to their input.
#include <fmt/format.h>

#include "nets/inception.h"
#include "nets/nets.h"
#include "src/ops/ops.h"

namespace carole::nets {
namespace {

using namespace inception;

// A branch with a single layer. Its name contains no position.
LayerSpec OnlyConv(int64_t outputs) { return Conv("", 1, outputs).Named("Conv2d_1x1"); }

std::vector<Branch> Mixed5b() {
  return {{OnlyConv(96)},
          {Conv("0a", 1, 48), Conv("0b", 5, 64)},
          {Conv("0a", 1, 64), Conv("0b", 3, 96), Conv("0c", 3, 96)},
          {AveragePool("0a"), Conv("0b", 1, 64)}};
}

// These reduce the map: 6a from 35x35 to 17x17 pixels, 7a from 17x17 to 8x8.
std::vector<Branch> Mixed6a() {
  return {{Conv("1a", 3, 384).Stride(2).Valid()},
          {Conv("0a", 1, 256), Conv("0b", 3, 256), Conv("1a", 3, 384).Stride(2).Valid()},
          {MaxPool("1a").Stride(2).Valid()}};
}
std::vector<Branch> Mixed7a() {
  return {{Conv("0a", 1, 256), Conv("1a", 3, 384).Stride(2).Valid()},
          {Conv("0a", 1, 256), Conv("1a", 3, 288).Stride(2).Valid()},
          {Conv("0a", 1, 256), Conv("0b", 3, 288), Conv("1a", 3, 320).Stride(2).Valid()},
          {MaxPool("1a").Stride(2).Valid()}};
}

// A residual block: x + scale * branches(x), then the activation.
struct Residual {
  std::vector<Branch> branches;
  double scale;
  Activation activation = Activation::kRelu;
};

// The blocks are named after the size of their map.
Residual Block35() {
  return {.branches = {{OnlyConv(32)},
                       {Conv("0a", 1, 32), Conv("0b", 3, 32)},
                       {Conv("0a", 1, 32), Conv("0b", 3, 48), Conv("0c", 3, 64)}},
          .scale = 0.17};
}
Residual Block17() {
  return {.branches = {{OnlyConv(192)},
                       {Conv("0a", 1, 128), Conv("0b", kRow, 160), Conv("0c", kColumn, 192)}},
          .scale = 0.10};
}
Residual Block8() {
  return {
      .branches = {{OnlyConv(192)},
                   {Conv("0a", 1, 192), Conv("0b", kShortRow, 224), Conv("0c", kShortColumn, 256)}},
      .scale = 0.20};
}

ValueId Apply(NetBuilder& b, ValueId x, const std::string& name, const Residual& block,
              const LayerOptions& layer) {
  const auto scope = b.Enter(name);
  const ValueId y = Branches(b, x, block.branches, layer);
  const ConvGeometry back{.outputs = b.shape(x)[1], .window = 1};
  const ValueId up = Conv2d(b, y, "Conv2d_1x1", back, layer.Linear());
  return Activate(b, ops::ScaledAdd(b.graph(), x, up, block.scale), block.activation);
}

}  // namespace

NetOutput InceptionResnetV2(NetBuilder& b, ValueId x) {
  const auto scope = b.Enter("InceptionResnetV2");
  LayerOptions layer = FamilyLayerOptions(Initializer::XavierUniform());
  layer.l2_biases = true;
  const auto repeat = [&](const char* name, int times, const Residual& block) {
    for (int i = 1; i <= times; ++i) {
      x = Apply(b, x, fmt::format("{}_{}", name, i), block, layer);
    }
  };
  x = Stem(b, x, InceptionV3Stem(), layer);
  x = Mixed(b, x, "Mixed_5b", Mixed5b(), layer);
  repeat("Repeat/block35", 10, Block35());
  x = Mixed(b, x, "Mixed_6a", Mixed6a(), layer);
  repeat("Repeat_1/block17", 20, Block17());
  const ValueId before_aux = b.EndPoint("PreAuxLogits", x);
  x = Mixed(b, x, "Mixed_7a", Mixed7a(), layer);
  repeat("Repeat_2/block8", 9, Block8());
  Residual last = Block8();
  last.scale = 1;
  last.activation = Activation::kNone;
  x = Apply(b, x, "Block8", last, layer);
  x = Stem(b, x, {Conv("7b", 1, 1536)}, layer);
  const AuxNames aux{.pool = "Conv2d_1a_3x3", .last = "Conv2d_2a_5x5"};
  const ValueId aux_logits = AddDenseAuxHead(b, before_aux, aux, "Logits", layer);
  NetOutput output = AddDenseHead(b, x, layer);
  output.aux_logits = aux_logits;
  return output;
}

}  // namespace carole::nets
