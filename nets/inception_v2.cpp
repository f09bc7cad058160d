// Inception v2, "BN-Inception" (Ioffe & Szegedy 2015), as TF-Slim defines it: the first layer is a
// separable convolution with a bias and without batch norm.
#include "nets/inception.h"
#include "nets/nets.h"

namespace carole::nets {
namespace {

using namespace inception;

// Reducer: the first convolution of a branch that has more layers. Projection: the convolution
// after a pooling.
LayerSpec Reducer(int64_t outputs) {
  return Conv("0a", 1, outputs).Weights(Initializer::TruncatedNormal(0.09));
}
LayerSpec Projection(int64_t outputs) {
  return Conv("0b", 1, outputs).Weights(Initializer::TruncatedNormal(0.1));
}

// The output channels of a block's convolutions, by branch.
struct Widths {
  const char* name;
  int64_t b0, b1[2], b2[3], b3;
  LayerSpec pool = AveragePool("0a");
};

// Adds blocks of four branches: 1x1; 1x1, 3x3; 1x1, 3x3, 3x3; pooling, 1x1.
ValueId Blocks(NetBuilder& b, ValueId x, const std::vector<Widths>& blocks,
               const LayerOptions& layer) {
  for (const Widths& w : blocks) {
    x = Mixed(b, x, w.name,
              {{Conv("0a", 1, w.b0)},
               {Reducer(w.b1[0]), Conv("0b", 3, w.b1[1])},
               {Reducer(w.b2[0]), Conv("0b", 3, w.b2[1]), Conv("0c", 3, w.b2[2])},
               {w.pool, Projection(w.b3)}},
              layer);
  }
  return x;
}

struct ReductionWidths {
  const char* name;
  int64_t b0[2], b1[3];
};

// Adds a block that halves height and width of the map.
ValueId Reduction(NetBuilder& b, ValueId x, const ReductionWidths& w, const LayerOptions& layer) {
  return Mixed(b, x, w.name,
               {{Reducer(w.b0[0]), Conv("1a", 3, w.b0[1]).Stride(2)},
                {Reducer(w.b1[0]), Conv("0b", 3, w.b1[1]), Conv("1a", 3, w.b1[2]).Stride(2)},
                {MaxPool("1a").Stride(2)}},
               layer);
}

ValueId FirstLayer(NetBuilder& b, ValueId x) {
  return b.EndPoint("Conv2d_1a_7x7",
                    SeparableConv2d(b, x, "Conv2d_1a_7x7",
                                    {.outputs = 64, .window = 7, .stride = 2, .multiplier = 8},
                                    {.weights = Initializer::TruncatedNormal(1.0)}));
}

}  // namespace

NetOutput InceptionV2(NetBuilder& b, ValueId x) {
  const auto scope = b.Enter("InceptionV2");
  const LayerOptions layer = FamilyLayerOptions(Initializer::He());
  x = FirstLayer(b, x);
  x = Stem(b, x,
           {MaxPool("2a").Stride(2), Conv("2b", 1, 64).Weights(Initializer::TruncatedNormal(0.1)),
            Conv("2c", 3, 192), MaxPool("3a").Stride(2)},
           layer);
  x = Blocks(b, x,
             {{"Mixed_3b", 64, {64, 64}, {64, 96, 96}, 32},  //
              {"Mixed_3c", 64, {64, 96}, {64, 96, 96}, 64}},
             layer);
  x = Reduction(b, x, {"Mixed_4a", {128, 160}, {64, 96, 96}}, layer);
  x = Blocks(b, x,
             {{"Mixed_4b", 224, {64, 96}, {96, 128, 128}, 128},
              {"Mixed_4c", 192, {96, 128}, {96, 128, 128}, 128},
              {"Mixed_4d", 160, {128, 160}, {128, 160, 160}, 96},
              {"Mixed_4e", 96, {128, 192}, {160, 192, 192}, 96}},
             layer);
  x = Reduction(b, x, {"Mixed_5a", {128, 192}, {192, 256, 256}}, layer);
  x = Blocks(b, x,
             {{"Mixed_5b", 352, {192, 320}, {160, 224, 224}, 128},
              {"Mixed_5c", 352, {192, 320}, {192, 224, 224}, 128, MaxPool("0a")}},
             layer);
  return AddConvHead(b, x, {.pool = "AvgPool_1a", .logits = "Conv2d_1c_1x1", .window = 7}, layer);
}

}  // namespace carole::nets
