// GELU.
#pragma once

#include "src/backend/ops/op.h"

namespace carole {

// Gaussian error linear unit (Hendrycks & Gimpel 2016).
//   tanh = false:  y = x * Phi(x), with Phi(x) = (1 + erf(x / sqrt(2))) / 2, the distribution
//                  function of the normal distribution
//   tanh = true:   y = x/2 * (1 + tanh(u)) with u = kSqrtOf2OverPi * (x + kCubic * x^3), which
//                  approximates it
// Gradients are those of the formula that is chosen.
struct GeluAttributes {
  bool tanh = false;

  static constexpr double kSqrtOf2OverPi = 0.79788456080286536;
  static constexpr double kCubic = 0.044715;
};

namespace op {

inline constexpr OpSchema kGeluBackward{.name = "gelu_backward",
                                        .inputs = {Activation("dy"), Activation("x")},
                                        .outputs = {Activation("dx")}};
inline constexpr OpSchema kGelu{.name = "gelu",
                                .inputs = {Activation("x")},
                                .outputs = {Activation("y")},
                                .backward = &kGeluBackward};

}  // namespace op

}  // namespace carole
