// Backward operations that several gradient rules share.
#pragma once

#include <vector>

#include "src/graph/graph.h"

namespace carole::ops {

// dy where y, the result of a ReLU, is positive (and below the ceiling); 0 elsewhere.
ValueId ReluGradient(Graph& graph, ValueId dy, ValueId y, double ceiling = 0);

// The gradients of y = [relu](x * w + bias [+ residual]), a convolution or a product, which has no
// residual: inputs x, w, [bias], [residual].
// `backward` are the attributes without the ReLU.
std::vector<ValueId> FilterRule(const GradientArgs& args, bool relu, const OpAttributes& backward,
                                OpKind filter_kind, OpKind data_kind);

}  // namespace carole::ops
