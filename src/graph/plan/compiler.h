// Turns a graph into a plan for a backend. compiler.cpp explains how.
#pragma once

#include "src/backend/backend.h"
#include "src/graph/graph.h"
#include "src/graph/plan/plan.h"
#include "src/graph/schedule.h"
#include "src/graph/variable_store.h"

namespace carole {

struct CompileOptions {
  // If not null, variables get the layouts of this store, so that evaluation can use the weights of
  // training. The plan must then be bound to this store.
  const VariableStore* share_layouts_of = nullptr;
  // The order of the nodes (recompute.h); empty means the order of the graph. Nodes whose results
  // are outputs of the graph must not appear twice.
  Schedule schedule = {};
};

// Makes all kernels, chooses layouts, inserts reorders and plans the memory. `graph` and `backend`
// must outlive the plan. Throws InternalError if no kernel makes the gradient of a variable.
Plan Compile(const Graph& graph, const Backend& backend, const CompileOptions& options = {});

}  // namespace carole
