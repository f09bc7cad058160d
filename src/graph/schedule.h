// The order in which a step runs the nodes of a graph, and the memory that this order needs. A
// forward node that comes a second time is computed again (recompute.h): from there on its results
// are the new ones, so the old ones need not have been kept for backward.
#pragma once

#include <vector>

#include "src/graph/graph.h"
#include "src/graph/memory_plan.h"

namespace carole {

using Schedule = std::vector<NodeId>;

// The nodes that lead to an output or to a gradient, in the order of the graph, each once.
Schedule PlainSchedule(const Graph& graph);

// For each value the one whose memory it has: a reshaped value shares its source's. kNone for
// variables and their gradients, which lie in arenas of their own.
std::vector<ValueId> MemoryOwners(const Graph& graph);

// Bytes in a plain layout.
int64_t ValueBytes(const Graph& graph, ValueId value);

// The memory of all values under this schedule, steps counted by its places: each result lives from
// its maker to its last reader, inputs and outputs of the graph forever. No result is written in
// place of an input, and kernels' workspaces are not known here.
std::vector<MemoryBlock> Lifetimes(const Graph& graph, const Schedule& schedule);

}  // namespace carole
