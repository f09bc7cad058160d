// Recomputation: forward results are given up after the forward pass and computed again when
// backward comes to them, which takes time and saves memory (Chen et al. 2016, "Training deep nets
// with sublinear memory cost"). The kernels, and so all bits of the results, are the same; dropout
// repeats its mask, and moving statistics move once.
#pragma once

#include <cstddef>
#include <memory>

#include "src/backend/backend.h"
#include "src/graph/executable.h"
#include "src/graph/schedule.h"

namespace carole {

struct RecomputePlan {
  Schedule schedule;
  size_t peak_bytes = 0;     // the most that lives at one step, by Lifetimes()
  double forward_again = 0;  // share of the forward pass's work that is done twice
};

// The cheapest plan found for this backend that needs at most `bytes`; if none does, the one that
// needs least. Of a graph that Differentiate() has seen, Fuse() before it.
RecomputePlan PlanRecomputation(const Graph& graph, const Backend& backend, size_t bytes);

// An executable whose arena (activations, their gradients, kernels' workspaces) takes at most
// `bytes`; recomputes only where it must. Throws UsageError that names the least that works.
std::unique_ptr<Executable> CompileWithin(const Graph& graph, const Backend& backend, size_t bytes);

}  // namespace carole
