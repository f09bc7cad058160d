// Multiplication of two tensors of one shape.
#pragma once

#include "src/backend/ops/op.h"

namespace carole::op {

// y = a * b. The gradient of each factor is dy times the other one, so there is no backward
// operation.
inline constexpr OpSchema kMultiply{
    .name = "multiply", .inputs = {Activation("a"), Activation("b")}, .outputs = {Activation("y")}};

}  // namespace carole::op
