// Activations in 16 bits: half the memory and traffic, and faster products where the device has
// them. Variables, their gradients and everything that callers read stay fp32.
#pragma once

#include "src/backend/op.h"
#include "src/graph/graph.h"

namespace carole {

// From now on the graph stores activations and their gradients as `dtype` (kBF16, kF16; kF32
// changes nothing). Call after FuseGradients(), with all outputs marked.
void StoreActivationsAs(DType dtype, Graph& graph);

// An operation that touches a 16-bit activation reads all activations and filters in that type;
// where it makes or takes fp32 in the graph, the plan casts.
void UnifyTypes(OpSpec& spec);
// For operations that a backend has no 16-bit kernel for: everything fp32.
void Widen(OpSpec& spec);

}  // namespace carole
