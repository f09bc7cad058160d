// Inception v4 (Szegedy et al. 2016, "Inception-v4, Inception-ResNet and the Impact of Residual
// Connections") as TF-Slim defines it.
#include <fmt/format.h>

#include "nets/inception.h"
#include "nets/nets.h"

namespace carole::nets {
namespace {

using namespace inception;

// The mixed layers of the stem: Mixed_3a, Mixed_4a, Mixed_5a.
std::vector<Branch> Stem3a() {
  return {{MaxPool("0a").Stride(2).Valid()}, {Conv("0a", 3, 96).Stride(2).Valid()}};
}
std::vector<Branch> Stem4a() {
  return {{Conv("0a", 1, 64), Conv("1a", 3, 96).Valid()},
          {Conv("0a", 1, 64), Conv("0b", kRow, 64), Conv("0c", kColumn, 64),
           Conv("1a", 3, 96).Valid()}};
}
std::vector<Branch> Stem5a() {
  return {{Conv("1a", 3, 192).Stride(2).Valid()}, {MaxPool("1a").Stride(2).Valid()}};
}

std::vector<Branch> BlockA() {
  return {{Conv("0a", 1, 96)},
          {Conv("0a", 1, 64), Conv("0b", 3, 96)},
          {Conv("0a", 1, 64), Conv("0b", 3, 96), Conv("0c", 3, 96)},
          {AveragePool("0a"), Conv("0b", 1, 96)}};
}

// These reduce the map: A from 35x35 to 17x17 pixels, B from 17x17 to 8x8.
std::vector<Branch> ReductionA() {
  return {{Conv("1a", 3, 384).Stride(2).Valid()},
          {Conv("0a", 1, 192), Conv("0b", 3, 224), Conv("1a", 3, 256).Stride(2).Valid()},
          {MaxPool("1a").Stride(2).Valid()}};
}
std::vector<Branch> ReductionB() {
  return {{Conv("0a", 1, 192), Conv("1a", 3, 192).Stride(2).Valid()},
          {Conv("0a", 1, 256), Conv("0b", kRow, 256), Conv("0c", kColumn, 320),
           Conv("1a", 3, 320).Stride(2).Valid()},
          {MaxPool("1a").Stride(2).Valid()}};
}

std::vector<Branch> BlockB() {
  return {{Conv("0a", 1, 384)},
          {Conv("0a", 1, 192), Conv("0b", kRow, 224), Conv("0c", kColumn, 256)},
          {Conv("0a", 1, 192), Conv("0b", kColumn, 192), Conv("0c", kRow, 224),
           Conv("0d", kColumn, 224), Conv("0e", kRow, 256)},
          {AveragePool("0a"), Conv("0b", 1, 128)}};
}

std::vector<Branch> BlockC() {
  return {{Conv("0a", 1, 256)},
          {Conv("0a", 1, 384), Split({Conv("0b", kShortRow, 256), Conv("0c", kShortColumn, 256)})},
          {Conv("0a", 1, 384), Conv("0b", kShortColumn, 448), Conv("0c", kShortRow, 512),
           Split({Conv("0d", kShortRow, 256), Conv("0e", kShortColumn, 256)})},
          {AveragePool("0a"), Conv("0b", 1, 256)}};
}

}  // namespace

NetOutput InceptionV4(NetBuilder& b, ValueId x) {
  const auto scope = b.Enter("InceptionV4");
  const LayerOptions layer = FamilyLayerOptions(Initializer::He());
  x = Stem(b, x,
           {Conv("1a", 3, 32).Stride(2).Valid(), Conv("2a", 3, 32).Valid(), Conv("2b", 3, 64)},
           layer);
  // Adds one mixed layer for each letter in `letters`: Mixed_5b, Mixed_5c, ...
  const auto mixed = [&](int stage, std::string_view letters, const std::vector<Branch>& branches) {
    for (const char letter : letters) {
      x = Mixed(b, x, fmt::format("Mixed_{}{}", stage, letter), branches, layer);
    }
  };
  mixed(3, "a", Stem3a());
  mixed(4, "a", Stem4a());
  mixed(5, "a", Stem5a());
  mixed(5, "bcde", BlockA());
  mixed(6, "a", ReductionA());
  mixed(6, "bcdefgh", BlockB());
  const ValueId before_aux = x;
  mixed(7, "a", ReductionB());
  mixed(7, "bcd", BlockC());
  const ValueId aux_logits =
      AddDenseAuxHead(b, before_aux, {.last = "Conv2d_2a"}, "Aux_logits", layer);
  NetOutput output = AddDenseHead(b, x, layer);
  output.aux_logits = aux_logits;
  return output;
}

}  // namespace carole::nets
