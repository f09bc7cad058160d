#include "src/core/simd.h"

#include <algorithm>
#include <cstdlib>

namespace carole {
namespace {

int DetectLevel() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("x86-64-v4")) return 4;
  if (__builtin_cpu_supports("x86-64-v3")) return 3;
  return 2;
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
