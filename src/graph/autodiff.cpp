#include "src/graph/autodiff.h"

#include <algorithm>

#include "src/backend/ops/add.h"
#include "src/core/check.h"

namespace carole {
namespace {

// Marks the values that depend on a trainable variable. Only these need gradients.
std::vector<bool> ValuesWithGradient(const Graph& graph) {
  std::vector<bool> wanted(graph.num_values(), false);
  for (const Variable& v : graph.variables()) wanted[v.value] = v.trainable;
  for (const Node& node : graph.nodes()) {
    if (node.dead || node.gradient == nullptr) continue;
    const bool any = std::any_of(node.inputs.begin(), node.inputs.end(),
                                 [&](ValueId id) { return id != kNone && wanted[id]; });
    for (ValueId id : node.outputs) {
      if (id != kNone && any) wanted[id] = true;
    }
  }
  return wanted;
}

// Adds the gradients that a value got from its readers. Returns kNone if there are none.
ValueId Sum(Graph& graph, const std::vector<ValueId>& parts, const std::string& name) {
  if (parts.empty()) return kNone;
  if (parts.size() == 1) return parts[0];
  const Shape shape = graph.shape(parts[0]);
  return graph.AddResult({.kind = op::kAdd, .inputs = parts, .name = name}, shape);
}

}  // namespace

RewriteCounts Differentiate(Graph& graph) {
  const std::vector<bool> wanted = ValuesWithGradient(graph);
  std::vector<std::vector<ValueId>> parts(graph.num_values());
  const std::string scope = graph.scope();
  graph.SetPhase(Phase::kBackward);

  for (int i = static_cast<int>(graph.nodes().size()) - 1; i >= 0; --i) {
    const Node& node = graph.nodes()[i];
    if (node.dead || node.gradient == nullptr) continue;
    const bool is_loss =
        std::any_of(graph.losses().begin(), graph.losses().end(),
                    [&](const auto& loss) { return graph.value(loss.second).producer == i; });
    std::vector<ValueId> dy;
    bool flows = is_loss;
    for (ValueId id : node.outputs) {
      dy.push_back(id == kNone || !wanted[id] ? kNone : Sum(graph, parts[id], node.name));
      flows |= dy.back() != kNone;
    }
    if (!flows) continue;
    std::vector<bool> wants;
    for (ValueId id : node.inputs) wants.push_back(id != kNone && wanted[id]);
    if (std::none_of(wants.begin(), wants.end(), [](bool w) { return w; })) continue;
    graph.SetScope(node.name);
    const std::vector<ValueId> dx = node.gradient({graph, node, dy, wants});
    CAROLE_CHECK_EQ(dx.size(), node.inputs.size(), "gradient rule of {} {}", Name(node.kind),
                    node.name);
    for (size_t j = 0; j < dx.size(); ++j) {
      if (dx[j] == kNone || !wants[j]) continue;
      CAROLE_CHECK_EQ(graph.shape(dx[j]), graph.shape(node.inputs[j]),
                      "gradient of input {} of {} {}", j, Name(node.kind), node.name);
      parts[node.inputs[j]].push_back(dx[j]);
    }
  }
  for (Variable& v : graph.mutable_variables()) {
    if (v.trainable) v.gradient = Sum(graph, parts[v.value], v.name);
  }
  graph.SetScope(scope);
  graph.SetPhase(Phase::kForward);
  return FuseGradientSums(graph);
}

}  // namespace carole
