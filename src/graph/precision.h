// Mixed precision: activations and their gradients are stored in 16 bits. That halves their memory
// and memory traffic, and products are faster if the device supports the type. Variables, their
// gradients and everything that callers read stay fp32.
#pragma once

#include "src/backend/ops/op.h"
#include "src/graph/graph.h"

namespace carole {

// Makes the graph store activations and their gradients as `dtype` (kBF16 or kF16; kF32 changes
// nothing). Call it after FuseGradients(), when all outputs have been marked. Throws InternalError
// if variables are not fp32.
void StoreActivationsAs(DType dtype, Graph& graph);

// If one activation of the operation is stored in 16 bits, makes it read all activations and
// filters in that type. The compiler casts the inputs that are fp32 in the graph.
void UnifyTypes(OpSpec& spec);
// Makes all 16-bit inputs and outputs fp32, for backends without a 16-bit kernel for this
// operation.
void WidenToFp32(OpSpec& spec);

}  // namespace carole
