// SiLU, also called swish.
#pragma once

#include "src/backend/ops/op.h"

// y = x * sigmoid(x), with sigmoid(x) = 1 / (1 + exp(-x)) (Ramachandran, Zoph & Le 2017).
// dx = dy * s * (1 + x * (1 - s)) with s = sigmoid(x).
namespace carole::op {

inline constexpr OpSchema kSiluBackward{.name = "silu_backward",
                                        .inputs = {Activation("dy"), Activation("x")},
                                        .outputs = {Activation("dx")}};
inline constexpr OpSchema kSilu{.name = "silu",
                                .inputs = {Activation("x")},
                                .outputs = {Activation("y")},
                                .backward = &kSiluBackward};

}  // namespace carole::op
