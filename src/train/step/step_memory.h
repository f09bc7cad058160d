// Checks whether a step fits into the memory of a rank.
#pragma once

#include "src/backend/backend.h"
#include "src/graph/graph.h"
#include "src/train/step/step_options.h"

namespace carole::train {

// Returns the bytes of a rank's state: weights, gradients, slots and everything else of their size
// (StepOptions::CountParameterArenas()), running statistics, and the variables that are frozen in
// `graph`.
size_t StateBytes(const Graph& graph, const StepOptions& options);

// Checks that state, activations (`activation_bytes`, from the plan) and the next batch fit into
// the free memory. Does nothing if the amount of free memory is unknown. For a device, throws
// ConfigError that says what is needed and free, and the largest batch that fits. On a host it logs
// a warning instead: the system may find more memory, or kill the rank without a message.
void RequireMemory(const Backend& backend, const Graph& graph, size_t activation_bytes,
                   const StepOptions& options);

}  // namespace carole::train
