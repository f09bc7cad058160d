// Whole numbers of numbers that people choose.
#pragma once

#include <algorithm>
#include <cstdint>

namespace carole {

// `value` without its fraction; of what has no room in 64 bits the last power of two that has.
inline int64_t ToInt64(double value) {
  constexpr double kMost = 4611686018427387904.0;  // 2^62
  return static_cast<int64_t>(std::clamp(value, -kMost, kMost));
}

}  // namespace carole
