// Runtime dispatch for vector code: picks the widest variant of a function that this CPU can run.
//
// CMake compiles each *_simd.cpp three times, for the x86-64 levels v2, v3 and v4
// (carole_simd_sources in CMakeLists.txt). The functions of the three builds are in the namespaces
// simd_v2, simd_v3 and simd_v4. A dispatcher is then one line:
//   static const auto f = PickSimd(simd_v2::Scale, simd_v3::Scale, simd_v4::Scale);
// CAROLE_EACH_SIMD_LEVEL(void Scale(float* x, int64_t count);) declares these functions.
#pragma once

namespace carole {

// Returns the x86-64 level of this CPU: 2, 3 (AVX2) or 4 (AVX-512). The environment variable
// CAROLE_SIMD_LEVEL=2|3|4 can lower it, for tests. The level is determined once per process.
int SimdLevel();

// Returns the variant for SimdLevel().
template <typename F>
F PickSimd(F v2, F v3, F v4) {
  const int level = SimdLevel();
  return level >= 4 ? v4 : level >= 3 ? v3 : v2;
}

}  // namespace carole

// Repeats declarations in the namespaces of all levels.
#define CAROLE_EACH_SIMD_LEVEL(...) \
  namespace simd_v2 {               \
  __VA_ARGS__                       \
  }                                 \
  namespace simd_v3 {               \
  __VA_ARGS__                       \
  }                                 \
  namespace simd_v4 {               \
  __VA_ARGS__                       \
  }
