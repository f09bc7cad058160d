#include "nets/summary.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "src/backend/ops/softmax.h"
#include "src/graph/flops.h"
#include "src/graph/schedule.h"

namespace carole::nets {
namespace {

int64_t Parameters(const Graph& g, const Node& node) {
  int64_t count = 0;
  for (ValueId id : node.inputs) {
    const int32_t variable = id == kNone ? kNone : g.value(id).variable;
    if (variable != kNone && g.variables()[variable].trainable) count += g.shape(id).size();
  }
  return count;
}

// Whether a node of this name belongs to the layer: it is in the same scope or is the layer's batch
// norm.
bool BelongsTo(std::string_view layer, std::string_view name) {
  return name.starts_with(layer) &&
         (name.size() == layer.size() || name.substr(layer.size()) == "/BatchNorm");
}

bool IsInput(const Graph& graph, ValueId id) { return graph.value(id).producer == kNone; }

}  // namespace

NetSummary Summarize(const Graph& graph) {
  NetSummary summary;
  for (const Node& node : graph.nodes()) {
    if (node.kind == op::kSoftmaxCrossEntropy || node.phase != Phase::kForward) continue;
    if (summary.layers.empty() || !BelongsTo(summary.layers.back().name, node.name)) {
      summary.layers.push_back({.name = node.name, .kind = {}, .output = {}});
    }
    LayerSummary& row = summary.layers.back();
    row.kind += (row.kind.empty() ? "" : "+") + std::string(Name(node.kind));
    row.output = graph.shape(node.outputs[0]);
    row.parameters += Parameters(graph, node);
    row.flops += Flops(graph, node);
  }
  for (const LayerSummary& row : summary.layers) summary.flops += row.flops;
  summary.parameters = CountParameters(graph);
  return summary;
}

ActivationMemory MeasureActivations(const Graph& graph) {
  const std::vector<ValueId> owners = MemoryOwners(graph);
  auto bytes = [&](const std::set<ValueId>& values) {
    int64_t sum = 0;
    for (ValueId id : values) sum += ValueBytes(graph, id);
    return sum;
  };
  auto collect = [&](const std::vector<ValueId>& from, std::set<ValueId>& to, auto&& wanted) {
    for (ValueId id : from) {
      if (id != kNone && owners[id] != kNone && wanted(owners[id])) to.insert(owners[id]);
    }
  };
  std::set<ValueId> kept;
  for (const Node& node : graph.nodes()) {
    if (node.dead || node.phase != Phase::kBackward) continue;
    collect(node.inputs, kept, [&](ValueId id) {
      return IsInput(graph, id) || graph.nodes()[graph.value(id).producer].phase == Phase::kForward;
    });
  }
  std::vector<MemoryBlock> blocks = Lifetimes(graph, PlainSchedule(graph));
  ActivationMemory memory{.kept_bytes = bytes(kept),
                          .peak_bytes = static_cast<int64_t>(PeakBytes(blocks)),
                          .planned_bytes = static_cast<int64_t>(PlanMemory(blocks))};
  for (const Node& node : graph.nodes()) {
    if (node.dead) continue;
    std::set<ValueId> working;
    const auto passing = [&](ValueId id) { return !kept.contains(id); };
    collect(node.inputs, working, passing);
    collect(node.outputs, working, passing);
    memory.working_set_bytes = std::max(memory.working_set_bytes, bytes(working));
  }
  return memory;
}

ParameterCount CountParameters(const Graph& graph) {
  ParameterCount count;
  for (const Variable& v : graph.variables()) {
    (v.trainable ? count.trainable : count.statistics) += v.shape.size();
  }
  return count;
}

}  // namespace carole::nets
