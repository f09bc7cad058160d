// The part of a graph that a result needs.
#pragma once

#include <set>
#include <span>

#include "src/graph/graph.h"

namespace carole::exporting {

// Returns all nodes that `results` depend on. Ids of nodes are in an order in which they can run,
// and so is the set.
std::set<NodeId> FindAncestors(const Graph& graph, std::span<const ValueId> results);

}  // namespace carole::exporting
