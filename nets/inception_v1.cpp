// Inception v1, "GoogLeNet" (Szegedy et al. 2014, "Going Deeper with Convolutions"), as TF-Slim
// defines it: with batch norm, with 3x3 instead of 5x5 convolutions, without auxiliary heads.
#include "nets/inception.h"
#include "nets/nets.h"

namespace carole::nets {
namespace {

using namespace inception;

// The output channels of a block's convolutions, by branch.
struct Widths {
  const char* name;
  int64_t b0, b1[2], b2[2], b3;
  const char* last_of_b2 = "Conv2d_0b_3x3";
};

// Adds blocks of four branches: 1x1; 1x1, 3x3; 1x1, 3x3; max pooling, 1x1.
ValueId Blocks(NetBuilder& b, ValueId x, const std::vector<Widths>& blocks,
               const LayerOptions& layer) {
  for (const Widths& w : blocks) {
    x = Mixed(b, x, w.name,
              {{Conv("0a", 1, w.b0)},
               {Conv("0a", 1, w.b1[0]), Conv("0b", 3, w.b1[1])},
               {Conv("0a", 1, w.b2[0]), Conv("0b", 3, w.b2[1]).Named(w.last_of_b2)},
               {MaxPool("0a"), Conv("0b", 1, w.b3)}},
              layer);
  }
  return x;
}

}  // namespace

NetOutput InceptionV1(NetBuilder& b, ValueId x) {
  const auto scope = b.Enter("InceptionV1");
  const LayerOptions layer = FamilyLayerOptions(Initializer::TruncatedNormal(0.01));
  x = Stem(b, x,
           {Conv("1a", 7, 64).Stride(2), MaxPool("2a").Stride(2), Conv("2b", 1, 64),
            Conv("2c", 3, 192), MaxPool("3a").Stride(2)},
           layer);
  x = Blocks(b, x,
             {{"Mixed_3b", 64, {96, 128}, {16, 32}, 32},  //
              {"Mixed_3c", 128, {128, 192}, {32, 96}, 64}},
             layer);
  x = Stem(b, x, {MaxPool("4a").Stride(2)}, layer);
  x = Blocks(b, x,
             {{"Mixed_4b", 192, {96, 208}, {16, 48}, 64},
              {"Mixed_4c", 160, {112, 224}, {24, 64}, 64},
              {"Mixed_4d", 128, {128, 256}, {24, 64}, 64},
              {"Mixed_4e", 112, {144, 288}, {32, 64}, 64},
              {"Mixed_4f", 256, {160, 320}, {32, 128}, 128}},
             layer);
  x = Stem(b, x, {MaxPool("5a", 2).Stride(2)}, layer);
  x = Blocks(b, x,
             {{"Mixed_5b", 256, {160, 320}, {32, 128}, 128, "Conv2d_0a_3x3"},
              {"Mixed_5c", 384, {192, 384}, {48, 128}, 128}},
             layer);
  const ConvHead head{
      .pool = "AvgPool_0a_7x7", .logits = "Conv2d_0c_1x1", .window = 7, .pre_logits = false};
  return AddConvHead(b, x, head, FamilyLayerOptions(Initializer::He()));
}

}  // namespace carole::nets
