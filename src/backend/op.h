// The operations that graphs consist of and backends implement: their kinds, attributes, inputs and
// outputs. The table below lists inputs and outputs in order; optional ones are in brackets. An
// optional input or output that is not used holds a TensorSpec with present = false.
//
// Shapes are listed in this order: activations x (N,C,H,W), y (N,K,P,Q); filters w
// (K,C/groups,R,S); matrices x (N,C), w (K,C). Gradients are called dx, dw, db, dy and have the
// shapes of x, w, b, y.
//
// Activations and their gradients may be stored in bf16 or fp16. Filters are then read in that type
// too, so that both factors of a product are 16 bits wide, and sums are accumulated in fp32.
// Everything else (biases, parameters of batch norm, statistics, gradients of variables, losses)
// stays fp32.
//
// clang-format off
// kind                     inputs                                          outputs
// kConv2d                  x, w, [bias (K)], [residual]                    y
// kConv2dBackwardData      dy, w, [y of the ReLU that made x]              dx (0 where that y is 0), [db (C): sums of dx]
// kConv2dBackwardFilter    x, dy, [y of the ReLU that dy has to pass]      dw, [db]
// kLinear                  x, w, [bias (K)]                                y
// kLinearBackwardData      dy, w                                           dx
// kLinearBackwardFilter    x, dy                                           dw, [db]
// kBatchNorm               x, [gamma], [beta], [residual],                 y, [mean], [rstd], [relu_bitmask]
//                          moving_mean, moving_variance (C)
// kBatchNormBackward       dy, x, [y], [gamma], [beta], mean, rstd,        dx, [dgamma], [dbeta], [dresidual]
//                          [dy2], [addend], [relu_bitmask]
// kRelu                    x                                               y
// kReluBackward            dy, y                                           dx, [db (C)]
// kHardActivation          x                                               y
// kHardActivationBackward  dy, x                                           dx
// kAdd                     a, b, …                                         sum
// kScaledAdd               a, b                                            a + factor * b
// kScale                   x                                               factor * x
// kScaleChannels           x, scale (N,C,1,1)                              y
// kScaleChannelsBackward   dy, x, scale                                    [dx], [dscale]
// kPool2d                  x                                               y, [argmax]
// kPool2dBackward          dy, [argmax]                                    dx
// kLrn                     x                                               y
// kLrnBackward             dy, x                                           dx
// kDropout                 x                                               y
// kDropoutBackward         dy                                              dx
// kSoftmax                 x (N,K)                                         y
// kSoftmaxCrossEntropy     logits (N,K), labels (N) or (N,K), weights (N)   loss (), dlogits
// kConcat                  x_0 (N,C_0,H,W), x_1 (N,C_1,H,W), …             y (N,sum C_i,H,W)
// kSlice                   x                                               y: a range of the channels of x
// kPad2d                   x                                               y
// kNormalize               x: bytes                                        y
// kReshape                 x                                               y: same elements, in NHWC order
// kReorder                 x                                               y: same shape, other layout or type
// kCasts                   x_0, x_1, …: all of one type                    y_0, y_1, …: the same values in another type
// clang-format on
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>
#include <variant>
#include <vector>

#include "src/core/dtype.h"
#include "src/core/shape.h"
#include "src/tensor/tensor.h"

namespace carole {

enum class OpKind : uint8_t {
  kConv2d,
  kConv2dBackwardData,
  kConv2dBackwardFilter,
  kLinear,
  kLinearBackwardData,
  kLinearBackwardFilter,
  kBatchNorm,
  kBatchNormBackward,
  kRelu,
  kReluBackward,
  kHardActivation,
  kHardActivationBackward,
  kAdd,
  kScaledAdd,
  kScale,
  kScaleChannels,
  kScaleChannelsBackward,
  kPool2d,
  kPool2dBackward,
  kLrn,
  kLrnBackward,
  kDropout,
  kDropoutBackward,
  kSoftmax,
  kSoftmaxCrossEntropy,
  kConcat,
  kSlice,
  kPad2d,
  kNormalize,
  kReshape,
  kReorder,
  kCasts
};

std::string_view Name(OpKind kind);

// Whether input or output number `index` holds an activation or the gradient of an activation.
bool IsActivationInput(OpKind kind, size_t index);
bool IsActivationOutput(OpKind kind, size_t index);
// Whether input number `index` holds a filter that is multiplied with activations.
bool IsFilterInput(OpKind kind, size_t index);

// Padding around an image, in pixels. Convolutions and averages read it as zeros, a maximum ignores
// it.
struct Padding {
  int64_t top = 0, left = 0, bottom = 0, right = 0;
  bool operator==(const Padding&) const = default;
};

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

// Fully connected layer: y = [relu](x w^T + bias). Gradients: dw = dy^T x, db = column sums of dy.
struct LinearAttributes {
  bool relu = false;
};

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

// y = min(max(x, 0), ceiling). The gradient passes where 0 < y < ceiling and is 0 elsewhere.
// The optional output db of kReluBackward is the gradient of a bias before the ReLU: the sums of dx
// over everything but the channels.
struct ReluAttributes {
  double ceiling = 0;  // 6 for ReLU6; 0 means none
};

// The upper bound of a ReLU's results: the ceiling, or infinity if there is none.
constexpr double ReluUpperBound(double ceiling) {
  return ceiling > 0 ? ceiling : std::numeric_limits<double>::infinity();
}

// Piecewise linear activations of MobileNet v3 (Howard et al. 2019). The slope of relu6 counts as 0
// at its two corners.
//   swish = true:   y = x * relu6(x + 3) * kSixth    (hard swish)
//   swish = false:  y = relu6(x + 3) * 0.16667       (hard sigmoid, the gate of squeeze-excite)
struct HardActivationAttributes {
  bool swish = true;
  static constexpr double kSixth =
      static_cast<double>(1.0f / 6.0f);  // TensorFlow rounds it to fp32

  // The constant factor of relu6(x + 3).
  double factor() const { return swish ? kSixth : 0.16667; }
};

struct ScaleAttributes {
  double factor = 1;
};

// Maximum or average over windows. The average divides by the number of pixels of the image that
// the window covers, without padding. The gradient of a maximum goes to the first of the largest
// pixels in row-major order. Each backend chooses type, shape and meaning of `argmax`.
struct Pool2dAttributes {
  enum class Mode : uint8_t { kMax, kAverage } mode = Mode::kMax;
  int64_t window_h = 2, window_w = 2;
  int64_t stride_h = 2, stride_w = 2;
  Padding padding;
};

// y_c = x_c / (bias + alpha * sum_{|j-c| <= radius} x_j^2)^beta over channels (Krizhevsky et al.
// 2012, 3.3).
struct LrnAttributes {
  int64_t radius = 4;
  double bias = 1, alpha = 0.001 / 9, beta = 0.75;
};

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

// y is the channels [begin, begin + number of channels of y) of x.
struct SliceAttributes {
  int64_t begin = 0;
};

// y[n,c,p,q] = x[n,c,p - top,q - left], and 0 where x has no such pixel. Negative padding removes
// pixels, so the gradient is the same operation with negated padding.
struct Pad2dAttributes {
  Padding padding;
};

// y[n,c,h,w] = (x[n,c,h,w] - subtract[c]) * multiply, in this order. This is the last step of image
// preprocessing.
struct NormalizeAttributes {
  static constexpr int64_t kMaxChannels = 3;
  std::array<float, kMaxChannels> subtract{};
  float multiply = 1;
};

// loss = scale * sum_n weights[n] * cross_entropy(softmax(logits[n]), t[n]), with
// t[n] = l[n] * (1 - smoothing) + smoothing / K. Here l[n] is onehot(labels[n]) or soft labels.
// dlogits = d loss / d logits, computed in the same pass. Rows with weight 0 are not read; their
// dlogits are 0.
struct SoftmaxCrossEntropyAttributes {
  double smoothing = 0;
  double scale = 1;
};

using OpAttributes =
    std::variant<std::monostate, Conv2dAttributes, LinearAttributes, BatchNormAttributes,
                 ReluAttributes, HardActivationAttributes, ScaleAttributes, Pool2dAttributes,
                 LrnAttributes, DropoutAttributes, SoftmaxCrossEntropyAttributes, SliceAttributes,
                 Pad2dAttributes, NormalizeAttributes>;

// Indices of the inputs and outputs of the operations with the longest lists.
struct BatchNormIndices {
  enum Input { kX, kGamma, kBeta, kResidual, kMovingMean, kMovingVariance, kInputs };
  enum Output { kY, kMean, kRstd, kReluBitmask, kOutputs };
};
struct Conv2dIndices {
  enum Input { kX, kW, kBias, kResidual, kInputs };
};
struct Conv2dBackwardDataIndices {
  enum Input { kDy, kW, kReluY };
  enum Output { kDx, kDb };
};
struct ReluBackwardIndices {
  enum Input { kDy, kY };
  enum Output { kDx, kDb };
};
struct FilterGradientIndices {  // kConv2dBackwardFilter and kLinearBackwardFilter
  enum Input { kX, kDy, kReluY };
  enum Output { kDw, kDb };
};
struct Pool2dBackwardIndices {
  enum Input { kDy, kArgmax };
};
struct BatchNormBackwardIndices {
  enum Input { kDy, kX, kY, kGamma, kBeta, kMean, kRstd, kDy2, kAddend, kReluBitmask, kInputs };
  enum Output { kDx, kDgamma, kDbeta, kDresidual, kOutputs };
};

// Describes one input or output of an operation.
struct TensorSpec {
  Shape shape;
  DType dtype = DType::kF32;
  Layout layout;        // Any: the kernel chooses
  bool present = true;  // false: an optional input or output that is not used
};

// Whether optional input or output number i is used. Unused ones at the end of the list may also be
// missing from it.
inline bool IsPresent(const std::vector<TensorSpec>& tensors, size_t i) {
  return i < tensors.size() && tensors[i].present;
}

// One operation with the shapes and layouts of its inputs and outputs.
struct OpSpec {
  OpKind kind;
  OpAttributes attributes = {};
  std::vector<TensorSpec> inputs = {};
  std::vector<TensorSpec> outputs = {};

  template <typename T>
  const T& attributes_as() const {
    return std::get<T>(attributes);
  }
};

// Whether a batch norm with these attributes and this y (N,C,H,W) can write relu_bitmask.
bool CanWriteReluBitmask(const BatchNormAttributes& attributes, const Shape& y);
// The shape of relu_bitmask for this y.
Shape ReluBitmaskShape(const Shape& y);
// Whether the operation is a batch norm or its backward, with relu_bitmask as output or input.
bool HasReluBitmask(const OpSpec& spec);
// Whether the operation is a convolution's gradient with a ReLU fused into it. kConv2dBackwardData
// masks its result by the ReLU's y, kConv2dBackwardFilter masks its dy.
bool HasReluYInput(const OpSpec& spec);

// Number of positions of a window of `window` pixels that slides over `in` pixels, with `before`
// and `after` pixels of padding.
constexpr int64_t WindowOutput(int64_t in, int64_t before, int64_t after, int64_t window,
                               int64_t stride) {
  return in + before + after < window ? 0 : (in + before + after - window) / stride + 1;
}

}  // namespace carole
