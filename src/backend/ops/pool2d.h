// Pooling: the maximum or average over windows.
#pragma once

#include "src/backend/ops/op.h"
#include "src/backend/ops/window.h"

namespace carole {

// The average divides by the number of pixels of the image that the window covers, without padding.
// The gradient of a maximum goes to the first of the largest pixels in row-major order. Each
// backend chooses type, shape and meaning of `argmax`.
struct Pool2dAttributes {
  enum class Mode : uint8_t { kMax, kAverage } mode = Mode::kMax;
  int64_t window_h = 2, window_w = 2;
  int64_t stride_h = 2, stride_w = 2;
  Padding padding;
};

template <typename T>
struct Pool2dBackwardInputs {
  T dy = Absent<T>(), argmax = Absent<T>();
};

namespace op {

inline int64_t Pool2dFlops(const OpSpec& spec) {
  const auto& a = spec.attributes.as<Pool2dAttributes>();
  return spec.outputs[0].shape.size() * a.window_h * a.window_w;
}

inline constexpr OpSchema kPool2dBackward{
    .name = "pool2d_backward",
    .inputs =
        Pool2dBackwardInputs<Port>{.dy = Activation("dy"), .argmax = Optional(Other("argmax"))},
    .outputs = {Activation("dx")}};
inline constexpr OpSchema kPool2d{.name = "pool2d",
                                  .inputs = {Activation("x")},
                                  .outputs = {Activation("y"), Optional(Other("argmax"))},
                                  .flops = Pool2dFlops,
                                  .backward = &kPool2dBackward};

}  // namespace op

}  // namespace carole
