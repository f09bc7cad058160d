// The order in which a step runs the nodes of a graph, and the memory that this order needs.
#pragma once

#include <vector>

#include "src/graph/graph.h"
#include "src/graph/memory_plan.h"

namespace carole {

// Nodes in the order in which they run. A forward node may appear a second time: it is recomputed
// there (recompute.h). Later nodes read its new results, so the first ones need not be kept for
// them.
using Schedule = std::vector<NodeId>;

// The nodes that an output or a gradient depends on, in the order of the graph, each once.
Schedule PlainSchedule(const Graph& graph);

// Returns for each value the value that owns its memory. A reshaped value shares the memory of its
// source. The owner is kNone for variables and their gradients, which are in arenas of their own.
std::vector<ValueId> MemoryOwners(const Graph& graph);

// The size of a value in a plain layout.
int64_t ValueBytes(const Graph& graph, ValueId value);

// The memory blocks of all values under this schedule. Step i is schedule[i]. A result lives from
// the step that makes it to its last reader. Inputs live from step 0 on; inputs and outputs of the
// graph live to the end. This is an estimate: the real plan also writes some results in place of
// inputs, and adds the kernels' workspaces.
std::vector<MemoryBlock> Lifetimes(const Graph& graph, const Schedule& schedule);

}  // namespace carole
