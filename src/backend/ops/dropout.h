// Dropout and drop path.
#pragma once

#include "src/backend/ops/op.h"

namespace carole {

// Keeps each element with probability KeepAt(step) and divides it by that probability. With
// per_row, keeps or drops whole rows of the batch (drop path: Larsson et al. 2016). The mask is a
// function of the seed and step in RunContext, of `layer`, and of the index of the element or row
// in the global batch. Backward computes it again.
struct DropoutAttributes {
  double keep = 0.5;  // probability
  int64_t layer = 0;  // a different number for each dropout of a net
  bool per_row = false;
  // The probability falls linearly from 1 to `keep` in this many steps; 0: it is always `keep`.
  int64_t schedule_steps = 0;

  constexpr double KeepAt(int64_t step) const {
    if (step >= schedule_steps) return keep;
    return 1 - static_cast<double>(step) / static_cast<double>(schedule_steps) * (1 - keep);
  }
};

namespace op {

inline constexpr OpSchema kDropoutBackward{
    .name = "dropout_backward", .inputs = {Activation("dy")}, .outputs = {Activation("dx")}};
inline constexpr OpSchema kDropout{.name = "dropout",
                                   .inputs = {Activation("x")},
                                   .outputs = {Activation("y")},
                                   .backward = &kDropoutBackward};

}  // namespace op

}  // namespace carole
