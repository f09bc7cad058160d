// VGG (Simonyan & Zisserman 2014) as TF-Slim defines it, and vgg_416: a VGG-16 whose groups
// together have 413 convolutions, as a benchmark of memory and throughput. The dense layers are
// implemented as convolutions, the first one over the whole map.
#include <fmt/format.h>

#include <array>
#include <string>

#include "nets/layers/layers.h"
#include "nets/nets.h"

namespace carole::nets {
namespace {

using Groups = std::array<int, 5>;  // number of convolutions in each group

NetOutput Vgg(NetBuilder& b, ValueId x, const char* net_name, const Groups& groups,
              bool exact = false) {
  constexpr std::array<int64_t, 5> kOutputs{64, 128, 256, 512, 512};
  const LayerOptions layer{.l2_weights = true, .exact = exact};
  const auto scope = b.Enter(net_name);
  for (size_t group = 0; group < groups.size(); ++group) {
    const std::string number = std::to_string(group + 1);
    for (int i = 1; i <= groups[group]; ++i) {
      const std::string name = fmt::format("conv{}/conv{}_{}", number, number, i);
      x = b.ScopedEndPoint(name,
                           Conv2d(b, x, name, {.outputs = kOutputs[group], .window = 3}, layer));
    }
    x = b.ScopedEndPoint("pool" + number, MaxPool2d(b, x, "pool" + number, {.window = 2}));
  }
  return ConvolutionalHead(b, x, {.window = 7, .fc6 = 4096, .fc7 = 4096}, layer, layer.Linear());
}

}  // namespace

NetOutput VggA(NetBuilder& b, ValueId x) { return Vgg(b, x, "vgg_a", {1, 1, 2, 2, 2}); }
NetOutput Vgg16(NetBuilder& b, ValueId x) { return Vgg(b, x, "vgg_16", {2, 2, 3, 3, 3}); }
NetOutput Vgg19(NetBuilder& b, ValueId x) { return Vgg(b, x, "vgg_19", {2, 2, 4, 4, 4}); }
// The convolutions are exact, because rounding errors grow by a factor of ten thousand on the way
// through 413 ReLUs.
NetOutput Vgg416(NetBuilder& b, ValueId x) {
  return Vgg(b, x, "vgg_416", {82, 82, 83, 83, 83}, true);
}

}  // namespace carole::nets
