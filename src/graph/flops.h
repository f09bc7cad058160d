// Operations of one forward node; multiply and add are two.
#pragma once

#include <cstdint>

#include "src/graph/graph.h"

namespace carole {

int64_t Flops(const Graph& graph, const Node& node);

}  // namespace carole
