// Fake quantization: values are rounded to the codes of an 8-bit integer format and stay floating
// point. A net that is trained with it loses little when it is converted to integers
// (Jacob et al. 2018, "Quantization and Training of Neural Networks for Efficient
// Integer-Arithmetic-Only Inference").
#pragma once

#include <algorithm>
#include <cmath>

#include "src/backend/ops/op.h"

namespace carole {

// QuantGrid makes lo, hi, scale and zero_point from the range [min, max], min <= 0 <= max. qmin is
// the smallest code. The result y is:
//   c    = min(max(x, lo), hi)
//   code = qmin + floor((c - lo) / scale + 0.5)
//   y    = (code - zero_point) * scale
// Gradient: dx = dy + l2_weight * y where lo <= x <= hi, else 0. The second term is that of L2
// regularization, l2_weight/2 * sum y^2, which TF-Slim takes of quantized weights. The range gets
// no gradient: it is measured.
//
// The range is a pair of variables, which kernels update in training (`range`):
//   kFixed    It stays as it is: in evaluation.
//   kLatest   That of this tensor: min = min(0, smallest x), max = max(0, largest x). For weights.
//   kAverage  A moving average over batches, for activations. Only valid rows of the batch count:
//               steps  = steps + 1
//               biased = biased - (biased - batch) * d      d = 1 - 0.999 in fp32
//               min    = biased / (1 - (1 - d)^steps)       in fp32: QuantAverageFactor()
//             and the same for max, with a count of steps of its own. Checkpoints of TensorFlow
//             hold these four values.
// The new range is used at once.
//
// `delay`: while the input `step` is below it, y = x and dx = dy, and the range is updated all the
// same. Steps count from 1.
struct FakeQuantAttributes {
  enum class Range : uint8_t { kFixed, kLatest, kAverage };

  Range range = Range::kFixed;
  int bits = 8;
  bool narrow = false;  // leaves out the smallest code, so that codes are symmetric: for weights
  int64_t delay = 0;    // number of the first step that is quantized; 0 and 1: all are

  int smallest_code() const { return narrow ? 1 : 0; }
  int largest_code() const { return (1 << bits) - 1; }
};

// The inputs of fake quantization. All but x are scalars.
template <typename T>
struct FakeQuantInputs {
  T x = Absent<T>(), min = Absent<T>(), max = Absent<T>();
  // Absent unless the range is a moving average.
  T biased_min = Absent<T>(), min_steps = Absent<T>(), biased_max = Absent<T>(),
    max_steps = Absent<T>();
  T step = Absent<T>();       // absent without a delay
  T l2_weight = Absent<T>();  // a scalar; absent: 0
};
template <typename T>
struct FakeQuantBackwardInputs {
  T dy = Absent<T>(), x = Absent<T>(), min = Absent<T>(), max = Absent<T>(), step = Absent<T>(),
    l2_weight = Absent<T>();
};

// Makes the functions below usable in GPU code.
#ifdef __CUDACC__
#define CAROLE_HOST_DEVICE __host__ __device__
#else
#define CAROLE_HOST_DEVICE
#endif

// The numbers that a range can represent. The zero point is the code of 0. It is rounded, which
// moves both ends by up to half a step ("nudges" them).
template <typename T>
struct QuantGrid {
  T scale = 0, lo = 0, hi = 0;
  T zero_point = 0;
  T smallest = 0;  // the smallest code

  CAROLE_HOST_DEVICE QuantGrid(T min, T max, T smallest_code, T largest_code)
      : scale((max - min) / (largest_code - smallest_code)), smallest(smallest_code) {
    const T exact = smallest_code - min / scale;  // NaN if the range is empty
    const T rounded = exact < 0 ? -std::floor(-exact + T{0.5}) : std::floor(exact + T{0.5});
    zero_point = exact < smallest_code  ? smallest_code
                 : exact > largest_code ? largest_code
                                        : rounded;
    lo = (smallest_code - zero_point) * scale;
    hi = (largest_code - zero_point) * scale;
  }

  CAROLE_HOST_DEVICE bool is_empty() const { return scale == 0; }
  // Zero if the range is empty. NaN stays NaN.
  CAROLE_HOST_DEVICE T Round(T x) const {
    if (is_empty()) return std::isnan(x) ? x : 0;
    const T raised = x < lo ? lo : x, clamped = raised > hi ? hi : raised;
    const T code = smallest + std::floor((clamped - lo) / scale + T{0.5});
    return (code - zero_point) * scale;
  }
  // Whether the gradient passes.
  CAROLE_HOST_DEVICE bool Contains(T x) const { return is_empty() || (x >= lo && x <= hi); }
};

inline constexpr float kQuantAverageRate = 0.001F;  // d

// Returns the factor that removes the bias of a moving average that began with 0, after this
// number of steps. TensorFlow computes it in fp32, and its error is large: 0.0009999871 for the
// first step.
CAROLE_HOST_DEVICE inline float QuantAverageFactor(double steps) {
  return 1.0F - static_cast<float>(std::pow(static_cast<double>(1.0F - kQuantAverageRate), steps));
}

// One end of a range that is a moving average. Returns the new end.
template <typename T>
CAROLE_HOST_DEVICE T UpdateQuantAverage(T batch, T& biased, T& steps) {
  steps += 1;
  biased -= (biased - batch) * static_cast<T>(kQuantAverageRate);
  return biased / static_cast<T>(QuantAverageFactor(static_cast<double>(steps)));
}

// The layout in which kernels read and write a tensor x. A weight that no kernel has read yet gets
// the plain layout of filters.
inline Layout LayoutOfFakeQuant(const TensorSpec& x) {
  if (!x.layout.is_any()) return x.layout;
  return x.shape.rank() >= 2 ? Layout::Filter() : Layout::RowMajor();
}

namespace op {

inline constexpr OpSchema kFakeQuantBackward{
    .name = "fake_quant_backward",
    .inputs = FakeQuantBackwardInputs<Port>{.dy = Activation("dy"),
                                            .x = Activation("x"),
                                            .min = Other("min"),
                                            .max = Other("max"),
                                            .step = Optional(Other("step")),
                                            .l2_weight = Optional(Other("l2_weight"))},
    .outputs = {Activation("dx")}};
inline constexpr OpSchema kFakeQuant{
    .name = "fake_quant",
    .inputs = FakeQuantInputs<Port>{.x = Activation("x"),
                                    .min = Other("min"),
                                    .max = Other("max"),
                                    .biased_min = Optional(Other("biased_min")),
                                    .min_steps = Optional(Other("min_steps")),
                                    .biased_max = Optional(Other("biased_max")),
                                    .max_steps = Optional(Other("max_steps")),
                                    .step = Optional(Other("step")),
                                    .l2_weight = Optional(Other("l2_weight"))},
    .outputs = {Activation("y")},
    .backward = &kFakeQuantBackward};

}  // namespace op

}  // namespace carole
