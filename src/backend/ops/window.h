// Windows that slide over images: padding, and the size of the result.
#pragma once

#include <cstdint>

namespace carole {

// Padding around an image, in pixels. Convolutions and averages read it as zeros, a maximum ignores
// it.
struct Padding {
  int64_t top = 0, left = 0, bottom = 0, right = 0;
  bool operator==(const Padding&) const = default;
};

// Number of positions of a window of `window` pixels that slides over `in` pixels, with `before`
// and `after` pixels of padding.
constexpr int64_t WindowOutput(int64_t in, int64_t before, int64_t after, int64_t window,
                               int64_t stride) {
  return in + before + after < window ? 0 : (in + before + after - window) / stride + 1;
}

}  // namespace carole
