// Hard swish and hard sigmoid.
#pragma once

#include "src/backend/ops/op.h"

namespace carole {

// Piecewise linear activations of MobileNet v3 (Howard et al. 2019). The slope of relu6 counts as 0
// at its two corners.
//   swish = true:   y = x * relu6(x + 3) * kSixth    (hard swish)
//   swish = false:  y = relu6(x + 3) * 0.16667       (hard sigmoid, the gate of squeeze-excite)
struct HardActivationAttributes {
  bool swish = true;
  double other_factor = 0;  // replaces the constant factor unless it is 0
  static constexpr double kSixth =
      static_cast<double>(1.0f / 6.0f);  // TensorFlow rounds it to fp32

  // The constant factor of relu6(x + 3).
  double factor() const { return other_factor != 0 ? other_factor : swish ? kSixth : 0.16667; }
};

namespace op {

inline constexpr OpSchema kHardActivationBackward{.name = "hard_activation_backward",
                                                  .inputs = {Activation("dy"), Activation("x")},
                                                  .outputs = {Activation("dx")}};
inline constexpr OpSchema kHardActivation{.name = "hard_activation",
                                          .inputs = {Activation("x")},
                                          .outputs = {Activation("y")},
                                          .backward = &kHardActivationBackward};

}  // namespace op

}  // namespace carole
