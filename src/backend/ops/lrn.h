// Local response normalization.
#pragma once

#include "src/backend/ops/op.h"

namespace carole {

// y_c = x_c / (bias + alpha * sum_{|j-c| <= radius} x_j^2)^beta over channels (Krizhevsky et al.
// 2012, 3.3).
struct LrnAttributes {
  int64_t radius = 4;
  double bias = 1, alpha = 0.001 / 9, beta = 0.75;
};

namespace op {

inline int64_t LrnFlops(const OpSpec& spec) {
  return spec.outputs[0].shape.size() * 2 * (2 * spec.attributes.as<LrnAttributes>().radius + 2);
}

inline constexpr OpSchema kLrnBackward{.name = "lrn_backward",
                                       .inputs = {Activation("dy"), Activation("x")},
                                       .outputs = {Activation("dx")}};
inline constexpr OpSchema kLrn{.name = "lrn",
                               .inputs = {Activation("x")},
                               .outputs = {Activation("y")},
                               .flops = LrnFlops,
                               .backward = &kLrnBackward};

}  // namespace op

}  // namespace carole
