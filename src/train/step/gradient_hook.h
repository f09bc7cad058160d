// Lets a test or a drill change the gradients of one rank before they are reduced over ranks, as a
// faulty processor would.
#pragma once

#include <cstdint>
#include <functional>

#include "src/graph/variable_store.h"

namespace carole::train {

// Is called when the gradient of `variable` (an index into store.variables()) is final on this rank
// for the last micro-batch of `step`. It may change the gradient. On a device the gradient is
// device memory, and the hook runs when the work is enqueued.
using GradientHook = std::function<void(VariableStore& store, int variable, int64_t step)>;

// Sets the hook of this thread, as ranks may be threads of one process. An empty hook removes it.
void SetGradientHook(GradientHook hook);

// Calls the hook of this thread, if there is one.
void CallGradientHook(VariableStore& store, int variable, int64_t step);

}  // namespace carole::train
