// Whether a step fits into the memory of a rank.
#pragma once

#include "src/backend/backend.h"
#include "src/graph/graph.h"
#include "src/train/step/step_options.h"

namespace carole::train {

// Bytes of weights, gradients, slots and all that belongs to them (StepOptions::num_arenas()), of
// statistics, and of what `graph` says is frozen.
size_t StateBytes(const Graph& graph, const StepOptions& options);

// Throws ConfigError that says what is needed and free, and the largest batch that fits; on a host
// warns of it, as the system may yet find memory, or end the rank without a word. Does nothing
// where what is free is not known. activation_bytes: of the plan.
void RequireMemory(const Backend& backend, const Graph& graph, size_t activation_bytes,
                   const StepOptions& options);

}  // namespace carole::train
