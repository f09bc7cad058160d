// Sums of tensors, and multiplication by a constant.
#pragma once

#include "src/backend/ops/op.h"

namespace carole {

// The constant of kScale and kScaledAdd.
struct ScaleAttributes {
  double factor = 1;
};

namespace op {

// y = a + b + …
inline constexpr OpSchema kAdd{.name = "add",
                               .inputs = {Activation("a"), Activation("b")},
                               .outputs = {Activation("y")},
                               .repeats = true};
// y = a + factor * b
inline constexpr OpSchema kScaledAdd{.name = "scaled_add",
                                     .inputs = {Activation("a"), Activation("b")},
                                     .outputs = {Activation("y")}};
// y = factor * x
inline constexpr OpSchema kScale{
    .name = "scale", .inputs = {Activation("x")}, .outputs = {Activation("y")}};

}  // namespace op

}  // namespace carole
