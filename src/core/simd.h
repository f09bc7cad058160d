// Picks, once, the widest of a function's variants that this CPU runs.
//
// A file given to carole_simd_source() (CMakeLists.txt) is compiled for x86-64-v2, -v3 and -v4; its
// functions lie in namespaces simd_v2, simd_v3, simd_v4. A dispatcher is then one line:
//   static const auto f = PickSimd(simd_v2::Scale, simd_v3::Scale, simd_v4::Scale);
#pragma once

namespace carole {

// 2, 3 or 4: the x86-64 level of this CPU, lowered by CAROLE_SIMD_LEVEL=2|3|4 when that is set (for
// tests).
int SimdLevel();

template <typename F>
F PickSimd(F v2, F v3, F v4) {
  const int level = SimdLevel();
  return level >= 4 ? v4 : level >= 3 ? v3 : v2;
}

}  // namespace carole
