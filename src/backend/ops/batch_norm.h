// Batch normalization and its gradient, with ReLU and addition fused into them.
#pragma once

#include "src/backend/ops/op.h"

namespace carole {

// Batch normalization over (N,H,W), one statistic for each channel (Ioffe & Szegedy 2015, alg. 1).
// "Valid rows" are the first RunContext::valid_rows rows of the batch; n is their number of pixels.
//
// Forward:
//   y = [relu](gamma * (x - mean) * rstd + beta [+ residual]); absent gamma: 1, absent beta: 0.
//   rstd = 1/sqrt(variance + epsilon).
//   Training:  mean and biased variance of the valid rows, and
//              moving += (1 - decay) * (batch - moving). The moving variance takes the unbiased
//              variance, which is larger by the factor n/(n-1) (factor 1 if n = 1).
//              With RunContext::sum_over_ranks, the statistics and the sums in dx are those of the
//              valid rows of all ranks. dgamma and dbeta are still sums of this rank's rows.
//   Inference: mean and variance are the moving statistics; y is the only output.
//
// Backward (outputs are overwritten):
//   g = dy [+ dy2], and 0 where the ReLU gave 0 or its ceiling;
//   dbeta = sum g and dgamma = sum g * xhat over the valid rows;
//   dresidual = g;
//   dx = gamma * rstd * (g - dbeta/n - xhat * dgamma/n) [+ addend] in the valid rows;
//   dx = gamma * rstd * g [+ addend] in the other rows, which had no part in the statistics.
//
// The ReLU's mask has three sources:
//   * y, if forward had a residual;
//   * x, gamma and beta, from which the result is computed again. y is absent then; this saves
//     reading it;
//   * relu_bitmask, bytes (N,C/kReluBitmaskBits,H,W) that forward writes: bit i of byte j says that
//     channel kReluBitmaskBits * j + i of y is above 0 (see CanWriteReluBitmask()). y is absent
//     then.
//
// Optional inputs of backward:
//   * dy2 is a second gradient of y, if two nodes read y. It requires dresidual, which stores the
//     sum.
//   * addend is the gradient that x gets from its other readers.
//   * dy may have more channels than x. The channels of x then begin at dy_begin; dy_begin and both
//     numbers of channels are multiples of kSliceGrain.
struct BatchNormAttributes {
  double epsilon = 1e-3;
  double decay = 0.999;
  bool training = true;
  bool relu = false;
  double ceiling = 0;    // of the ReLU, see ReluAttributes
  int64_t dy_begin = 0;  // backward only

  static constexpr int64_t kReluBitmaskBits = 4;  // 4 channels are 16 bytes in fp32
  static constexpr int64_t kSliceGrain = 16;      // a multiple of every backend's channel blocks
};

template <typename T>
struct BatchNormInputs {
  T x = Absent<T>(), gamma = Absent<T>(), beta = Absent<T>(), residual = Absent<T>(),
    moving_mean = Absent<T>(), moving_variance = Absent<T>();
};
template <typename T>
struct BatchNormOutputs {
  T y = Absent<T>(), mean = Absent<T>(), rstd = Absent<T>(), relu_bitmask = Absent<T>();
};

template <typename T>
struct BatchNormBackwardInputs {
  T dy = Absent<T>(), x = Absent<T>(), y = Absent<T>(), gamma = Absent<T>(), beta = Absent<T>(),
    mean = Absent<T>(), rstd = Absent<T>(), dy2 = Absent<T>(), addend = Absent<T>(),
    relu_bitmask = Absent<T>();
};
template <typename T>
struct BatchNormBackwardOutputs {
  T dx = Absent<T>(), dgamma = Absent<T>(), dbeta = Absent<T>(), dresidual = Absent<T>();
};

namespace op {

// In inference: a factor and an offset that are computed beforehand.
inline int64_t BatchNormFlops(const OpSpec& spec) { return 2 * spec.outputs[0].shape.size(); }

inline constexpr OpSchema kBatchNorm{
    .name = "batch_norm",
    .inputs = BatchNormInputs<Port>{.x = Activation("x"),
                                    .gamma = Optional(Other("gamma")),
                                    .beta = Optional(Other("beta")),
                                    .residual = Optional(Activation("residual")),
                                    .moving_mean = Other("moving_mean"),
                                    .moving_variance = Other("moving_variance")},
    .outputs = BatchNormOutputs<Port>{.y = Activation("y"),
                                      .mean = Optional(Other("mean")),
                                      .rstd = Optional(Other("rstd")),
                                      .relu_bitmask = Optional(Other("relu_bitmask"))},
    .flops = BatchNormFlops};
inline constexpr OpSchema kBatchNormBackward{
    .name = "batch_norm_backward",
    .inputs = BatchNormBackwardInputs<Port>{.dy = Activation("dy"),
                                            .x = Activation("x"),
                                            .y = Optional(Activation("y")),
                                            .gamma = Optional(Other("gamma")),
                                            .beta = Optional(Other("beta")),
                                            .mean = Other("mean"),
                                            .rstd = Other("rstd"),
                                            .dy2 = Optional(Activation("dy2")),
                                            .addend = Optional(Activation("addend")),
                                            .relu_bitmask = Optional(Other("relu_bitmask"))},
    .outputs = BatchNormBackwardOutputs<Port>{.dx = Activation("dx"),
                                              .dgamma = Optional(Other("dgamma")),
                                              .dbeta = Optional(Other("dbeta")),
                                              .dresidual = Optional(Activation("dresidual"))}};

}  // namespace op

// Whether a batch norm with these attributes and this y (N,C,H,W) can write relu_bitmask.
bool CanWriteReluBitmask(const BatchNormAttributes& attributes, const Shape& y);
// The shape of relu_bitmask for this y.
Shape ReluBitmaskShape(const Shape& y);
// Whether the operation is a batch norm or its backward, with relu_bitmask as output or input.
bool HasReluBitmask(const OpSpec& spec);

}  // namespace carole
