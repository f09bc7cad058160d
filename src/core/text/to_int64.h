// Saturating conversion from double to int64, for numbers that users choose.
#pragma once

#include <algorithm>
#include <cstdint>

namespace carole {

// Returns `value` without its fraction, limited to [-2^62, 2^62].
inline int64_t ToInt64(double value) {
  constexpr double kLimit = 4611686018427387904.0;  // 2^62
  return static_cast<int64_t>(std::clamp(value, -kLimit, kLimit));
}

}  // namespace carole
