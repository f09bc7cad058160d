// Normalization of pixels.
#pragma once

#include "src/backend/ops/op.h"

namespace carole {

// y[n,c,h,w] = (x[n,c,h,w] - subtract[c]) * multiply, in this order. This is the last step of image
// preprocessing. x are bytes.
struct NormalizeAttributes {
  static constexpr int64_t kMaxChannels = 3;
  std::array<float, kMaxChannels> subtract{};
  float multiply = 1;
};

namespace op {

inline constexpr OpSchema kNormalize{
    .name = "normalize", .inputs = {Other("x")}, .outputs = {Activation("y")}};

}  // namespace op

}  // namespace carole
