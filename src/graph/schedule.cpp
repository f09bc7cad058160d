#include "src/graph/schedule.h"

#include <algorithm>

#include "src/backend/ops/copies.h"

namespace carole {

Schedule PlainSchedule(const Graph& graph) {
  std::vector<bool> needed(graph.num_values(), false);
  for (ValueId id : graph.outputs()) needed[id] = true;
  for (const Variable& v : graph.variables()) {
    if (v.gradient != kNone) needed[v.gradient] = true;
  }
  Schedule schedule;
  for (NodeId n = static_cast<NodeId>(graph.nodes().size()) - 1; n >= 0; --n) {
    const Node& node = graph.nodes()[n];
    const bool live =
        !node.dead && std::any_of(node.outputs.begin(), node.outputs.end(),
                                  [&](ValueId id) { return id != kNone && needed[id]; });
    if (!live) continue;
    schedule.push_back(n);
    for (ValueId id : node.inputs) {
      if (id != kNone) needed[id] = true;
    }
  }
  std::reverse(schedule.begin(), schedule.end());
  return schedule;
}

std::vector<ValueId> MemoryOwners(const Graph& graph) {
  std::vector<ValueId> owners(graph.num_values());
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    owners[id] = graph.value(id).variable == kNone ? id : kNone;
  }
  for (const Variable& v : graph.variables()) {
    if (v.gradient != kNone) owners[v.gradient] = kNone;
  }
  for (const Node& node : graph.nodes()) {
    if (!node.dead && node.kind == op::kReshape) owners[node.outputs[0]] = owners[node.inputs[0]];
  }
  return owners;
}

int64_t ValueBytes(const Graph& graph, ValueId value) {
  return graph.shape(value).size() * static_cast<int64_t>(SizeOf(graph.value(value).dtype));
}

std::vector<MemoryBlock> Lifetimes(const Graph& graph, const Schedule& schedule) {
  const std::vector<ValueId> owners = MemoryOwners(graph);
  const int last = std::max(static_cast<int>(schedule.size()) - 1, 0);
  std::vector<MemoryBlock> blocks;
  std::vector<int> block_of(graph.num_values(), -1);
  auto born = [&](ValueId id, int step) {
    block_of[id] = static_cast<int>(blocks.size());
    blocks.push_back({.bytes = static_cast<size_t>(ValueBytes(graph, id)),
                      .first_step = step,
                      .last_step = step});
  };
  for (int step = 0; step < static_cast<int>(schedule.size()); ++step) {
    const Node& node = graph.nodes()[schedule[step]];
    for (ValueId id : node.inputs) {
      if (id == kNone || owners[id] == kNone) continue;
      if (block_of[id] < 0) born(id, 0);  // an input of the graph
      MemoryBlock& block = blocks[block_of[id]];
      block.last_step = graph.value(id).producer == kNone ? last : std::max(block.last_step, step);
    }
    for (ValueId id : node.outputs) {
      if (id == kNone || owners[id] == kNone) continue;
      if (node.kind == op::kReshape) {
        block_of[id] = block_of[node.inputs[0]];
      } else {
        born(id, step);
      }
    }
  }
  for (ValueId id : graph.outputs()) {
    if (block_of[id] >= 0) blocks[block_of[id]].last_step = last;
  }
  return blocks;
}

}  // namespace carole
