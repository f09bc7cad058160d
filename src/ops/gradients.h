// Gradient rules that several operations share. Private to this room.
#pragma once

#include <vector>

#include "src/graph/graph.h"

namespace carole::ops {

// The gradient rule of operations with OpSchema::backward: appends that operation.
std::vector<ValueId> GradientByNames(const GradientArgs& args);

// Appends the backward operation of a ReLU. y is the result of the ReLU. Returns dx: dy where y is
// positive and below the ceiling, 0 elsewhere. A ceiling of 0 means that there is none.
ValueId ReluGradient(Graph& graph, ValueId dy, ValueId y, double ceiling = 0);

// The gradient rule of y = [relu](x * w + bias [+ residual]): a convolution with the inputs x, w,
// [bias], [residual], or a matrix product with the inputs x, w, [bias].
//   relu         whether the forward operation includes the ReLU
//   backward     attributes of the backward operations: those of the forward one, without ReLU
//   filter_kind  the operation that returns dw and db
//   data_kind    the operation that returns dx
std::vector<ValueId> ConvOrLinearGradient(const GradientArgs& args, bool relu,
                                          const OpAttributes& backward, OpKind filter_kind,
                                          OpKind data_kind);

}  // namespace carole::ops
