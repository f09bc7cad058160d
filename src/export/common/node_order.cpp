#include "src/export/common/node_order.h"

#include <vector>

namespace carole::exporting {

std::set<NodeId> FindAncestors(const Graph& graph, std::span<const ValueId> results) {
  std::set<NodeId> found;
  std::vector<ValueId> open(results.begin(), results.end());
  while (!open.empty()) {
    const ValueId v = open.back();
    open.pop_back();
    if (v == kNone) continue;
    const NodeId producer = graph.value(v).producer;
    if (producer == kNone || !found.insert(producer).second) continue;
    const Node& node = graph.nodes()[static_cast<size_t>(producer)];
    open.insert(open.end(), node.inputs.begin(), node.inputs.end());
  }
  return found;
}

}  // namespace carole::exporting
