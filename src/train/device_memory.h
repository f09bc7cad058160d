// Whether a step fits into the memory of a device.
#pragma once

#include "src/backend/backend.h"
#include "src/graph/graph.h"

namespace carole::train {

struct MemoryNeed {
  const Backend& backend;
  const Graph& graph;
  size_t activation_bytes = 0;  // of the plan
  size_t arenas = 2;            // of the form of all variables: weights, gradients, slots
};

// Throws ConfigError that says what is needed and free, and the largest batch that fits. Does
// nothing where what is free is not known.
void RequireMemory(const MemoryNeed& need);

}  // namespace carole::train
