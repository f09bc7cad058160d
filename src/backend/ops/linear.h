// Fully connected layer and its gradients.
#pragma once

#include "src/backend/ops/op.h"

namespace carole {

// y = [relu](x w^T + bias). Gradients: dw = dy^T x, db = column sums of dy.
struct LinearAttributes {
  bool relu = false;
};

template <typename T>
struct LinearInputs {
  T x = Absent<T>(), w = Absent<T>(), bias = Absent<T>();
};

namespace op {

inline int64_t LinearFlops(const OpSpec& spec) {
  const auto in = kPosition<LinearInputs>;
  const bool adds_bias = IsPresent(spec.inputs, in.bias);
  return spec.outputs[0].shape.size() * (2 * spec.inputs[in.w].shape[1] + adds_bias);
}

inline constexpr OpSchema kLinear{
    .name = "linear",
    .inputs =
        LinearInputs<Port>{.x = Activation("x"), .w = Filter("w"), .bias = Optional(Other("bias"))},
    .outputs = {Activation("y")},
    .flops = LinearFlops};
inline constexpr OpSchema kLinearBackwardData{.name = "linear_backward_data",
                                              .inputs = {Activation("dy"), Filter("w")},
                                              .outputs = {Activation("dx")}};
// Positions are those of FilterGradientInputs and FilterGradientOutputs (conv2d.h).
inline constexpr OpSchema kLinearBackwardFilter{.name = "linear_backward_filter",
                                                .inputs = {Activation("x"), Activation("dy")},
                                                .outputs = {Other("dw"), Optional(Other("db"))}};

}  // namespace op

}  // namespace carole
