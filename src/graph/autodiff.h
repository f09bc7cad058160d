// Reverse-mode differentiation: appends to the graph the operations that give d(sum of
// losses)/d(variable).
#pragma once

#include "src/graph/graph.h"

namespace carole {

// For every trainable variable that a loss depends on, sets Variable::gradient. Gradients that
// reach one value on several ways are added. Operations are appended in reverse order of the
// forward ones, filter gradients before data gradients, so that gradients become final as early as
// they can.
void Differentiate(Graph& graph);

}  // namespace carole
