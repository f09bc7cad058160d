#include "nets/summary.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "src/graph/memory_plan.h"

namespace carole::nets {
namespace {

// Operations of one forward node; multiply and add are two.
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
      return 2 * outputs;  // moving statistics, factor and term made beforehand
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

int64_t Parameters(const Graph& g, const Node& node) {
  int64_t count = 0;
  for (ValueId id : node.inputs) {
    const int32_t variable = id == kNone ? kNone : g.value(id).variable;
    if (variable != kNone && g.variables()[variable].trainable) count += g.shape(id).size();
  }
  return count;
}

// Whether a node of this name belongs to the layer: the same scope, or the layer's batch norm.
bool Continues(std::string_view layer, std::string_view name) {
  return name.starts_with(layer) &&
         (name.size() == layer.size() || name.substr(layer.size()) == "/BatchNorm");
}

bool IsInput(const Graph& graph, ValueId id) { return graph.value(id).producer == kNone; }

// For each value the one whose memory it has, or kNone: weights and their gradients lie elsewhere.
std::vector<ValueId> Owners(const Graph& graph) {
  std::vector<ValueId> owners(graph.num_values());
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    owners[id] = graph.value(id).variable == kNone ? id : kNone;
  }
  for (const Variable& v : graph.variables()) {
    if (v.gradient != kNone) owners[v.gradient] = kNone;
  }
  for (const Node& node : graph.nodes()) {
    if (!node.dead && node.kind == OpKind::kReshape)
      owners[node.outputs[0]] = owners[node.inputs[0]];
  }
  return owners;
}

int64_t Bytes(const Graph& graph, ValueId id) {
  return graph.shape(id).size() * static_cast<int64_t>(SizeOf(graph.value(id).dtype));
}

// Each value lives from its maker to its last reader; inputs and outputs for ever.
int64_t Peak(const Graph& graph, const std::vector<ValueId>& owners) {
  const int last = static_cast<int>(graph.nodes().size()) - 1;
  std::vector<MemoryBlock> blocks(graph.num_values());
  auto use = [&](ValueId id, int first, int step) {
    if (id == kNone || owners[id] == kNone) return;
    MemoryBlock& block = blocks[owners[id]];
    if (block.bytes == 0) block.first_step = first;
    block.bytes = static_cast<size_t>(Bytes(graph, owners[id]));
    block.last_step = std::max(block.last_step, step);
  };
  for (int step = 0; step <= last; ++step) {
    const Node& node = graph.nodes()[step];
    if (node.dead) continue;
    for (ValueId id : node.inputs) use(id, 0, id != kNone && IsInput(graph, id) ? last : step);
    for (ValueId id : node.outputs) use(id, step, step);
  }
  for (ValueId id : graph.outputs()) use(id, 0, last);
  return static_cast<int64_t>(PeakBytes(blocks));
}

}  // namespace

NetSummary Summarize(const Graph& graph) {
  NetSummary summary;
  for (const Node& node : graph.nodes()) {
    if (node.kind == OpKind::kSoftmaxCrossEntropy || node.phase != Phase::kForward) continue;
    if (summary.layers.empty() || !Continues(summary.layers.back().name, node.name)) {
      summary.layers.push_back({.name = node.name, .kind = {}, .output = {}});
    }
    LayerRow& row = summary.layers.back();
    row.kind += (row.kind.empty() ? "" : "+") + std::string(Name(node.kind));
    row.output = graph.shape(node.outputs[0]);
    row.parameters += Parameters(graph, node);
    row.flops += Flops(graph, node);
  }
  for (const LayerRow& row : summary.layers) summary.flops += row.flops;
  const ParameterCount count = CountParameters(graph);
  summary.trainable = count.trainable;
  summary.statistics = count.statistics;
  return summary;
}

ActivationMemory MeasureActivations(const Graph& graph) {
  const std::vector<ValueId> owners = Owners(graph);
  auto bytes = [&](const std::set<ValueId>& values) {
    int64_t sum = 0;
    for (ValueId id : values) sum += Bytes(graph, id);
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
  ActivationMemory memory{.kept_bytes = bytes(kept), .peak_bytes = Peak(graph, owners)};
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
