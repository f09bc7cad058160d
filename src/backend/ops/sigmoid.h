// The sigmoid function.
#pragma once

#include "src/backend/ops/op.h"

// y = 1 / (1 + exp(-x)), the gate of squeeze-excite; op::kScaleChannels multiplies by it.
// dx = dy * y * (1 - y).
namespace carole::op {

inline constexpr OpSchema kSigmoidBackward{.name = "sigmoid_backward",
                                           .inputs = {Activation("dy"), Activation("y")},
                                           .outputs = {Activation("dx")}};
inline constexpr OpSchema kSigmoid{.name = "sigmoid",
                                   .inputs = {Activation("x")},
                                   .outputs = {Activation("y")},
                                   .backward = &kSigmoidBackward};

}  // namespace carole::op
