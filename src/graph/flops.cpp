#include "src/graph/flops.h"

namespace carole {

int64_t Flops(const Graph& g, const Node& node) {
  const int64_t outputs = g.shape(node.outputs[0]).size();
  switch (node.kind) {
    case OpKind::kConv2d: {
      const Shape& w = g.shape(node.inputs[1]);
      return outputs * (2 * w[1] * w[2] * w[3] + (node.inputs[2] != kNone));
    }
    case OpKind::kLinear:
      return outputs * (2 * g.shape(node.inputs[1])[1] + (node.inputs[2] != kNone));
    case OpKind::kBatchNorm:
      return 2 * outputs;  // in inference: a factor and an offset computed beforehand
    case OpKind::kPool2d: {
      const auto& pool = std::get<Pool2dAttributes>(node.attributes);
      return outputs * pool.window_h * pool.window_w;
    }
    case OpKind::kLrn:
      return outputs * 2 * (2 * std::get<LrnAttributes>(node.attributes).radius + 2);
    case OpKind::kReshape:
      return 0;
    case OpKind::kSoftmax:
      return 3 * outputs;
    default:
      return outputs;
  }
}

}  // namespace carole
