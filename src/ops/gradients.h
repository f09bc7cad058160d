// Backward operations that several gradient rules share.
#pragma once

#include "src/graph/graph.h"

namespace carole::ops {

// dy where y, the result of a ReLU, is positive (and below the ceiling); 0 elsewhere.
ValueId ReluGradient(Graph& graph, ValueId dy, ValueId y, double ceiling = 0);

}  // namespace carole::ops
