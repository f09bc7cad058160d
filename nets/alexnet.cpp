// AlexNet v2 (Krizhevsky 2014, "One weird trick", without local response normalization) and
// OverFeat (Sermanet et al. 2013), as TF-Slim defines them. The dense layers are implemented as
// convolutions, the first one over the whole map.
#include <array>
#include <string>

#include "nets/layers/layers.h"
#include "nets/nets.h"

namespace carole::nets {
namespace {

// A convolution, and the max pooling after it. Both have the same number in their names.
struct Stage {
  ConvGeometry conv;
  int64_t pool_window = 0;  // 0: no pooling
};

ValueId Body(NetBuilder& b, ValueId x, const std::array<Stage, 5>& stages,
             const LayerOptions& layer) {
  for (size_t i = 0; i < stages.size(); ++i) {
    const std::string number = std::to_string(i + 1);
    x = b.ScopedEndPoint("conv" + number, Conv2d(b, x, "conv" + number, stages[i].conv, layer));
    if (stages[i].pool_window == 0) continue;
    x = b.ScopedEndPoint("pool" + number,
                         MaxPool2d(b, x, "pool" + number, {.window = stages[i].pool_window}));
  }
  return x;
}

// The layers fc6 and fc7 and the logits. The initial biases of the logits are 0, those of the
// others 0.1.
NetOutput Head(NetBuilder& b, ValueId x, const DenseGeometry& geometry) {
  LayerOptions dense{.weights = Initializer::TruncatedNormal(0.005),
                     .biases = Initializer::Constant(0.1),
                     .l2_weights = true};
  LayerOptions last = dense.Linear();
  last.biases = Initializer::Constant(0);
  return ConvolutionalHead(b, x, geometry, dense, last);
}

}  // namespace

NetOutput AlexNetV2(NetBuilder& b, ValueId x) {
  const auto scope = b.Enter("alexnet_v2");
  const LayerOptions layer{.biases = Initializer::Constant(0.1), .l2_weights = true};
  x = Body(b, x,
           {{{{.outputs = 64, .window = 11, .stride = 4, .pad = Pad::kValid}, 3},
             {{.outputs = 192, .window = 5}, 3},
             {{.outputs = 384, .window = 3}},
             {{.outputs = 384, .window = 3}},
             {{.outputs = 256, .window = 3}, 3}}},
           layer);
  return Head(b, x, {.window = 5, .fc6 = 4096, .fc7 = 4096});
}

NetOutput OverFeat(NetBuilder& b, ValueId x) {
  const auto scope = b.Enter("overfeat");
  const LayerOptions layer{.l2_weights = true};
  x = Body(b, x,
           {{{{.outputs = 64, .window = 11, .stride = 4, .pad = Pad::kValid}, 2},
             {{.outputs = 256, .window = 5, .pad = Pad::kValid}, 2},
             {{.outputs = 512, .window = 3}},
             {{.outputs = 1024, .window = 3}},
             {{.outputs = 1024, .window = 3}, 2}}},
           layer);
  return Head(b, x, {.window = 6, .fc6 = 3072, .fc7 = 4096});
}

}  // namespace carole::nets
