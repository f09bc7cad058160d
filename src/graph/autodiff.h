// Reverse-mode automatic differentiation: appends the operations that compute the gradient of the
// sum of all losses with respect to each trainable variable.
#pragma once

#include "src/graph/graph.h"
#include "src/graph/rewrites.h"

namespace carole {

// Sets Variable::gradient for every trainable variable that a loss depends on. If several nodes
// read a value, their gradients are added. The backward operations are appended in reverse order of
// the forward ones. Filter gradients come before data gradients, so that the gradients of variables
// become final as early as possible. Calls FuseGradientSums() at the end and returns its counts.
RewriteCounts Differentiate(Graph& graph);

}  // namespace carole
