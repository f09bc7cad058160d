// Activation recomputation, also called activation checkpointing (Chen et al. 2016, "Training deep
// nets with sublinear memory cost"). Some activations are dropped after the forward pass and
// computed again when backward needs them. This saves memory and takes time.
//
// Results do not change by a single bit: the same kernels run again, dropout repeats its mask, and
// moving statistics are updated only once. recompute.cpp explains the search for a plan.
#pragma once

#include <cstddef>

#include "src/backend/backend.h"
#include "src/graph/plan/plan.h"
#include "src/graph/schedule.h"

namespace carole {

// Which forward nodes are computed again, and when.
struct RecomputePlan {
  Schedule schedule;
  size_t peak_bytes = 0;           // largest number of live bytes at one step, by Lifetimes()
  double recomputed_fraction = 0;  // fraction of the forward pass's work that is done twice
};

// Returns the plan with the least work that was found among those that need at most `bytes`. If
// none does, returns the one that needs least memory. Call it after Differentiate().
RecomputePlan PlanRecomputation(const Graph& graph, const Backend& backend, size_t bytes);

// As Compile(), but the arena of the plan (activations, their gradients, workspaces) takes at most
// `bytes`. Recomputes only as much as is necessary. Throws UsageError, which names the smallest
// size that works, if `bytes` is too small.
Plan CompileWithin(const Graph& graph, const Backend& backend, size_t bytes);

}  // namespace carole
