// The vocabulary between graph and backends: kinds of operations, their attributes, and the fixed
// places of their inputs and outputs. An optional place that is not used holds an absent
// TensorSpec.
//
// Shapes are listed as the field lists them: activations x (N,C,H,W), y (N,K,P,Q); filters w
// (K,C/groups,R,S); matrices x (N,C), w (K,C). Gradients are called dx, dw, db, dy and have the
// shapes of x, w, b, y.
//
// Activations and their gradients may be stored in bf16 or fp16; filters are then read in that type
// too, so that products multiply narrow numbers, and sums are made in fp32. All else (biases,
// parameters of batch norm, statistics, gradients of variables, losses) stays fp32.
//
// clang-format off
// kind                     inputs                                          outputs
// kConv2d                  x, w, [bias (K)], [residual]                    y
// kConv2dBackwardData      dy, w, [relu's y]                               dx, 0 where relu's y is, [db (C): its sums]
// kConv2dBackwardFilter    x, dy, [y of a ReLU on dy]                      dw, [db]
// kLinear                  x, w, [bias (K)]                                y
// kLinearBackwardData      dy, w                                           dx
// kLinearBackwardFilter    x, dy                                           dw, [db]
// kBatchNorm               x, [gamma], [beta], [residual],                 y, [mean], [rstd], [passed]
//                          moving_mean, moving_variance (C)
// kBatchNormBackward       dy, x, [y], [gamma], [beta], mean, rstd,        dx, [dgamma], [dbeta], [dresidual]
//                          [dy2], [addend], [passed]
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
// kSoftmaxCrossEntropy     logits (N,K), labels (N) int32, weights (N)     loss (), dlogits
// kConcat                  x_0 (N,C_0,H,W), x_1 (N,C_1,H,W), …             y (N,sum C_i,H,W)
// kSlice                   x                                               y: some of the channels
// kPad2d                   x                                               y
// kNormalize               x: bytes                                        y
// kReshape                 x                                               y: same elements, NHWC order
// kReorder                 x                                               y: same shape, other layout or type
// kCasts                   x_0, x_1, …: all of one type                    y_0, y_1, …: the same in another, all of one
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

// Whether the place holds an activation or a gradient of one; or a filter that multiplies them.
bool IsActivationInput(OpKind kind, size_t place);
bool IsActivationOutput(OpKind kind, size_t place);
bool IsFilterInput(OpKind kind, size_t place);

// Zeros (convolution, average) or nothing (maximum) around an image, in pixels.
struct Padding {
  int64_t top = 0, left = 0, bottom = 0, right = 0;
  bool operator==(const Padding&) const = default;
};

// y[n,k,p,q] = [relu](bias[k] + sum x[n, g*C/groups + c, p*stride_h + r*dilation - top, …] *
// w[k,c,r,s] [+ residual[n,k,p,q]]); g = k / (K/groups).
struct Conv2dAttributes {
  int64_t stride_h = 1, stride_w = 1;
  Padding padding;
  int64_t dilation = 1;
  int64_t groups = 1;
  bool relu = false;   // forward only: the gradient of the activation is a node of its own
  bool exact = false;  // no faster algorithm that rounds more coarsely than these sums
};

// y = [relu](x w^T + bias). The filter's gradient is dw = dy^T x, db = column sums of dy.
struct LinearAttributes {
  bool relu = false;
};

// Batch normalization over (N,H,W), one statistic for each channel (Ioffe & Szegedy 2015, alg. 1).
//   training:  mean and biased variance of the rows that count (the first RunContext::valid_rows);
//              rstd = 1/sqrt(var + epsilon); moving += (1 - decay) * (batch - moving), where the
//              variance is the unbiased one, times n/(n-1) (n = 1: times 1).
//              With RunContext::sum_over_ranks the rows of all ranks count, here and in the sums of
//              dx; dgamma and dbeta stay this rank's part.
//   inference: the moving statistics; no outputs but y.
//   y = [relu](gamma * (x - mean) * rstd + beta [+ residual]); absent gamma: 1, absent beta: 0.
// Backward, with g = dy [+ dy2], 0 where the ReLU gave 0 or its ceiling:
//   dbeta = sum g, dgamma = sum g * xhat over the rows that count; dresidual = g;
//   dx = gamma * rstd * (g - dbeta/n - xhat * dgamma/n) [+ addend]; in the other rows, which had no
//   part in the statistics, gamma * rstd * g [+ addend].
//   The mask comes from y where there is a residual; without one it is computed again from x, gamma
//   and beta, which saves reading y (then y is absent). In y's stead there may be `passed`, bytes
//   (N,C/kReluBitmaskBits,H,W) that forward leaves: bit i of byte j says that y's channel
//   kReluBitmaskBits * j + i is above 0 (see CanWriteReluBitmask()). dy2, of a y that two read, is
//   there only beside dresidual, where the sum is stored; addend is the gradient of an x that
//   others read too. dy may have more channels, of which x's begin at dy_begin; then both numbers
//   of channels and dy_begin are multiples of kSliceGrain. Outputs are overwritten.
struct BatchNormAttributes {
  double epsilon = 1e-3;
  double decay = 0.999;
  bool training = true;
  bool relu = false;
  double ceiling = 0;    // of the ReLU, see ReluAttributes
  int64_t dy_begin = 0;  // backward only

  static constexpr int64_t kReluBitmaskBits = 4;  // as many as are 16 bytes in fp32
  static constexpr int64_t kSliceGrain = 16;      // every backend's packs and blocks divide it
};

// y = x between 0 and the ceiling; a gradient comes through where y lies between them, not on one.
// db, the gradient of a bias before the ReLU: the sums of dx over all but the channels.
struct ReluAttributes {
  double ceiling = 0;  // 6 for ReLU6; 0 means none
};

// What a ReLU's results are not above.
constexpr double ReluTop(double ceiling) {
  return ceiling > 0 ? ceiling : std::numeric_limits<double>::infinity();
}

// Of pieces of lines. Where they break off, relu6 has slope 0.
//   swish      y = x * relu6(x + 3) * kSixth (Howard et al. 2019)
//   else       y = relu6(x + 3) * 0.16667, the hard sigmoid that is squeeze-excite's gate
struct HardActivationAttributes {
  bool swish = true;
  static constexpr double kSixth =
      static_cast<double>(1.0f / 6.0f);  // TensorFlow rounds it to fp32

  // What relu6(x + 3) is multiplied with, besides x.
  double factor() const { return swish ? kSixth : 0.16667; }
};

struct ScaleAttributes {
  double factor = 1;
};

// Maximum or average over windows. Average divides by the pixels that a window really covers. The
// gradient of a maximum goes to the first largest pixel of the window, row by row. `argmax` is the
// backend's own affair.
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

// Keeps an element, or with per_row a whole row of the batch (drop path: Larsson et al. 2016), with
// probability KeepAt(step) and divides it by that. The mask is a function of (RunContext's seed and
// step, layer, place of the element or row in the global batch), computed again in backward.
struct DropoutAttributes {
  double keep = 0.5;
  int64_t layer = 0;
  bool per_row = false;
  int64_t schedule_steps = 0;  // from 1 down to `keep` in so many steps; 0: `keep` at once

  constexpr double KeepAt(int64_t step) const {
    if (step >= schedule_steps) return keep;
    return 1 - static_cast<double>(step) / static_cast<double>(schedule_steps) * (1 - keep);
  }
};

// The channels [begin, begin + C of y) of x.
struct SliceAttributes {
  int64_t begin = 0;
};

// y[n,c,p,q] = x[n,c,p - top,q - left], 0 where x has no such pixel. A negative amount cuts pixels
// off, so that the gradient is the same operation with the amounts negated.
struct Pad2dAttributes {
  Padding padding;
};

// y[n,c,h,w] = (x[n,c,h,w] - subtract[c]) * multiply, in this order: what is done at last to the
// pixels of an image.
struct NormalizeAttributes {
  static constexpr int64_t kMaxChannels = 3;
  std::array<float, kMaxChannels> subtract{};
  float multiply = 1;
};

// loss = scale * sum_n weights[n] * xent(softmax(logits[n]), t); t = onehot * (1 - smoothing) +
// smoothing / K. dlogits = d loss / d logits, made in the same pass. Rows with weight 0 are not
// looked at.
struct SoftmaxCrossEntropyAttributes {
  double smoothing = 0;
  double scale = 1;
};

using OpAttributes =
    std::variant<std::monostate, Conv2dAttributes, LinearAttributes, BatchNormAttributes,
                 ReluAttributes, HardActivationAttributes, ScaleAttributes, Pool2dAttributes,
                 LrnAttributes, DropoutAttributes, SoftmaxCrossEntropyAttributes, SliceAttributes,
                 Pad2dAttributes, NormalizeAttributes>;

// Places of inputs and outputs, where counting them would be unkind.
struct BatchNormPlaces {
  enum Input { kX, kGamma, kBeta, kResidual, kMovingMean, kMovingVariance, kInputs };
  enum Output { kY, kMean, kRstd, kReluBitmask, kOutputs };
};
struct Conv2dPlaces {
  enum Input { kX, kW, kBias, kResidual, kInputs };
};
struct Conv2dBackwardDataPlaces {
  enum Input { kDy, kW, kReluY };
  enum Output { kDx, kDb };
};
struct ReluBackwardPlaces {
  enum Input { kDy, kY };
  enum Output { kDx, kDb };
};
struct FilterGradientPlaces {  // of convolutions and of fully connected layers
  enum Input { kX, kDy, kReluY };
  enum Output { kDw, kDb };
};
struct Pool2dBackwardPlaces {
  enum Input { kDy, kArgmax };
};
struct BatchNormBackwardPlaces {
  enum Input { kDy, kX, kY, kGamma, kBeta, kMean, kRstd, kDy2, kAddend, kReluBitmask, kInputs };
  enum Output { kDx, kDgamma, kDbeta, kDresidual, kOutputs };
};

struct TensorSpec {
  Shape shape;
  DType dtype = DType::kF32;
  Layout layout;        // Any: the kernel chooses
  bool present = true;  // false: an optional place that is not used
};

// Whether an optional place, which may also be left out at the end, is used.
inline bool IsPresent(const std::vector<TensorSpec>& places, size_t i) {
  return i < places.size() && places[i].present;
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

// Whether a batch norm with this y (N,C,H,W) can leave `passed`, by its attributes; its shape; and
// whether an operation, a batch norm or its backward, has it.
bool CanWriteReluBitmask(const BatchNormAttributes& attributes, const Shape& y);
Shape ReluBitmaskShape(const Shape& y);
bool HasReluBitmask(const OpSpec& spec);
// Whether a convolution's gradient masks by a ReLU's y what it makes, or what it is given.
bool MasksByRelu(const OpSpec& spec);

// Output size of a window sliding over `in` pixels.
constexpr int64_t WindowOutput(int64_t in, int64_t before, int64_t after, int64_t window,
                               int64_t stride) {
  return in + before + after < window ? 0 : (in + before + after - window) / stride + 1;
}

}  // namespace carole
