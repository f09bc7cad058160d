// Inception v3 (Szegedy et al. 2015, "Rethinking the Inception Architecture"), as TF-Slim defines
// it, with TF-Slim's irregular names of some layers.
#include <fmt/format.h>

#include "nets/inception.h"
#include "nets/nets.h"

namespace carole::nets {
namespace {

using namespace inception;

// `reducer` and `conv` are the convolutions of Branch_1.
std::vector<Branch> BlockA(const LayerSpec& reducer, const LayerSpec& conv, int64_t projection) {
  return {{Conv("0a", 1, 64)},
          {reducer, conv},
          {Conv("0a", 1, 64), Conv("0b", 3, 96), Conv("0c", 3, 96)},
          {AveragePool("0a"), Conv("0b", 1, projection)}};
}

// These reduce the map: A from 35x35 to 17x17 pixels, B from 17x17 to 8x8.
std::vector<Branch> ReductionA() {
  return {{Conv("1a", 3, 384).Stride(2).Valid().Named("Conv2d_1a_1x1")},
          {Conv("0a", 1, 64), Conv("0b", 3, 96),
           Conv("1a", 3, 96).Stride(2).Valid().Named("Conv2d_1a_1x1")},
          {MaxPool("1a").Stride(2).Valid()}};
}
std::vector<Branch> ReductionB() {
  return {{Conv("0a", 1, 192), Conv("1a", 3, 320).Stride(2).Valid()},
          {Conv("0a", 1, 192), Conv("0b", kRow, 192), Conv("0c", kColumn, 192),
           Conv("1a", 3, 192).Stride(2).Valid()},
          {MaxPool("1a").Stride(2).Valid()}};
}

std::vector<Branch> BlockB(int64_t c) {
  return {{Conv("0a", 1, 192)},
          {Conv("0a", 1, c), Conv("0b", kRow, c), Conv("0c", kColumn, 192)},
          {Conv("0a", 1, c), Conv("0b", kColumn, c), Conv("0c", kRow, c), Conv("0d", kColumn, c),
           Conv("0e", kRow, 192)},
          {AveragePool("0a"), Conv("0b", 1, 192)}};
}

std::vector<Branch> BlockC(std::string_view column_position) {
  return {{Conv("0a", 1, 320)},
          {Conv("0a", 1, 384),
           Split({Conv("0b", kShortRow, 384), Conv(column_position, kShortColumn, 384)})},
          {Conv("0a", 1, 448), Conv("0b", 3, 384),
           Split({Conv("0c", kShortRow, 384), Conv("0d", kShortColumn, 384)})},
          {AveragePool("0a"), Conv("0b", 1, 192)}};
}

ValueId AddAuxHead(NetBuilder& b, ValueId x, const LayerOptions& layer) {
  const auto scope = b.Enter("AuxLogits");
  // TF-Slim names the last convolution after its window, which depends on the size of the images.
  const auto map = [&](int dim) { return (b.shape(x)[dim] - 5) / 3 + 1; };
  const std::string last = fmt::format("Conv2d_2a_{}x{}", map(2), map(3));
  x = AuxConvolutions(b, x, {.last = last}, layer, Initializer::TruncatedNormal(0.01));
  LayerOptions linear = layer.Linear();
  linear.weights = Initializer::TruncatedNormal(0.001);
  x = Conv2d(b, x, "Conv2d_2b_1x1", {.outputs = b.num_classes(), .window = 1}, linear);
  return b.EndPoint("AuxLogits", Squeeze(b, x, "SpatialSqueeze"));
}

}  // namespace

NetOutput InceptionV3(NetBuilder& b, ValueId x) {
  const auto scope = b.Enter("InceptionV3");
  const LayerOptions layer = FamilyLayerOptions(Initializer::He());
  const auto mixed = [&](std::string_view name, const std::vector<Branch>& branches) {
    x = Mixed(b, x, name, branches, layer);
  };
  x = Stem(b, x, InceptionV3Stem(), layer);
  mixed("Mixed_5b", BlockA(Conv("0a", 1, 48), Conv("0b", 5, 64), 32));
  mixed("Mixed_5c", BlockA(Conv("0b", 1, 48), Conv("0c", 5, 64).Named("Conv_1_0c_5x5"), 64));
  mixed("Mixed_5d", BlockA(Conv("0a", 1, 48), Conv("0b", 5, 64), 64));
  mixed("Mixed_6a", ReductionA());
  mixed("Mixed_6b", BlockB(128));
  mixed("Mixed_6c", BlockB(160));
  mixed("Mixed_6d", BlockB(160));
  mixed("Mixed_6e", BlockB(192));
  const ValueId before_aux = x;
  mixed("Mixed_7a", ReductionB());
  mixed("Mixed_7b", BlockC("0b"));
  mixed("Mixed_7c", BlockC("0c"));
  const ValueId aux_logits = AddAuxHead(b, before_aux, layer);
  const ConvHead head{.pool = "AvgPool_1a", .logits = "Conv2d_1c_1x1", .window = 8};
  NetOutput output = AddConvHead(b, x, head, layer);
  output.aux_logits = aux_logits;
  return output;
}

}  // namespace carole::nets
