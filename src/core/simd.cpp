#include "src/core/simd.h"

#include <algorithm>
#include <cstdlib>

namespace carole {
namespace {

// These ask for single features instead of level names, because clang knows "x86-64-v3" in
// __builtin_cpu_supports only since version 18.
bool HasLevel3() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

bool HasLevel4() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}

int DetectLevel() {
  __builtin_cpu_init();
  if (!HasLevel3()) return 2;
  return HasLevel4() ? 4 : 3;
}

}  // namespace

int SimdLevel() {
  static const int level = [] {
    const char* limit = std::getenv("CAROLE_SIMD_LEVEL");
    const int detected = DetectLevel();
    return limit == nullptr ? detected : std::clamp(std::atoi(limit), 2, detected);
  }();
  return level;
}

}  // namespace carole
