// Convolution and its gradients.
#pragma once

#include "src/backend/ops/op.h"
#include "src/backend/ops/window.h"

namespace carole {

// Convolution, with group g = k / (K/groups):
//   y[n,k,p,q] = [relu](bias[k] + sum_{c,r,s} x[n, g*C/groups + c, i, j] * w[k,c,r,s]
//                       [+ residual[n,k,p,q]])
//   i = p*stride_h + r*dilation - top;
//   j = q*stride_w + s*dilation - left.
struct Conv2dAttributes {
  int64_t stride_h = 1, stride_w = 1;
  Padding padding;
  int64_t dilation = 1;
  int64_t groups = 1;
  bool relu = false;   // forward only; the ReLU's gradient is a separate node
  bool exact = false;  // forbids faster algorithms with larger rounding errors (Winograd)
};

template <typename T>
struct Conv2dInputs {
  T x = Absent<T>(), w = Absent<T>(), bias = Absent<T>(), residual = Absent<T>();
};

// dx is 0 where relu_y, the result of the ReLU that made x, is 0. db (C) are the sums of dx.
template <typename T>
struct Conv2dBackwardDataInputs {
  T dy = Absent<T>(), w = Absent<T>(), relu_y = Absent<T>();
};
template <typename T>
struct Conv2dBackwardDataOutputs {
  T dx = Absent<T>(), db = Absent<T>();
};

// The gradient of the filter of a convolution or of the matrix of op::kLinear. Convolutions may
// have relu_y: dy then counts as 0 where relu_y, the result of the ReLU after them, is 0.
template <typename T>
struct FilterGradientInputs {
  T x = Absent<T>(), dy = Absent<T>(), relu_y = Absent<T>();
};
template <typename T>
struct FilterGradientOutputs {
  T dw = Absent<T>(), db = Absent<T>();
};

namespace op {

inline int64_t Conv2dFlops(const OpSpec& spec) {
  const auto in = kPosition<Conv2dInputs>;
  const Shape& w = spec.inputs[in.w].shape;
  const bool adds_bias = IsPresent(spec.inputs, in.bias);
  return spec.outputs[0].shape.size() * (2 * w[1] * w[2] * w[3] + adds_bias);
}

inline constexpr OpSchema kConv2d{
    .name = "conv2d",
    .inputs = Conv2dInputs<Port>{.x = Activation("x"),
                                 .w = Filter("w"),
                                 .bias = Optional(Other("bias")),
                                 .residual = Optional(Activation("residual"))},
    .outputs = {Activation("y")},
    .flops = Conv2dFlops};
inline constexpr OpSchema kConv2dBackwardData{
    .name = "conv2d_backward_data",
    .inputs =
        Conv2dBackwardDataInputs<Port>{
            .dy = Activation("dy"), .w = Filter("w"), .relu_y = Optional(Activation("relu_y"))},
    .outputs =
        Conv2dBackwardDataOutputs<Port>{.dx = Activation("dx"), .db = Optional(Other("db"))}};
inline constexpr OpSchema kConv2dBackwardFilter{
    .name = "conv2d_backward_filter",
    .inputs =
        FilterGradientInputs<Port>{
            .x = Activation("x"), .dy = Activation("dy"), .relu_y = Optional(Activation("relu_y"))},
    .outputs = FilterGradientOutputs<Port>{.dw = Other("dw"), .db = Optional(Other("db"))}};

}  // namespace op

// Whether the operation is a convolution's gradient with a ReLU fused into it. kConv2dBackwardData
// masks its result by the ReLU's y, kConv2dBackwardFilter masks its dy.
bool HasReluYInput(const OpSpec& spec);

}  // namespace carole
