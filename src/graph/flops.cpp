#include "src/graph/flops.h"

namespace carole {

int64_t Flops(const Graph& graph, const Node& node) {
  const OpSpec spec = graph.Spec(node);
  return node.kind->flops != nullptr ? node.kind->flops(spec) : spec.outputs[0].shape.size();
}

}  // namespace carole
