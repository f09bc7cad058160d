// Counts floating-point operations.
#pragma once

#include <cstdint>

#include "src/graph/graph.h"

namespace carole {

// The number of floating-point operations of one forward node. A multiplication and an addition are
// two operations.
int64_t Flops(const Graph& graph, const Node& node);

}  // namespace carole
