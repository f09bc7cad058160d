#include "src/core/simd.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "src/core/log.h"

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

// Returns the level of the CPU, or a lower one if CAROLE_SIMD_LEVEL says so.
int ChooseLevel() {
  const char* limit = std::getenv("CAROLE_SIMD_LEVEL");
  const int detected = DetectLevel();
  if (limit == nullptr) return detected;
  int wanted = detected;
  const char* const end = limit + std::strlen(limit);
  const auto [read_to, error] = std::from_chars(limit, end, wanted);
  const bool is_number = error == std::errc() && read_to == end;
  const int level = is_number ? std::clamp(wanted, 2, detected) : detected;
  if (!is_number || wanted < 2 || wanted > 4)
    LogWarning("job", "CAROLE_SIMD_LEVEL: got {}, want 2, 3 or 4; using {}",
               *limit == '\0' ? "nothing" : limit, level);
  return level;
}

}  // namespace

int SimdLevel() {
  static const int level = ChooseLevel();
  return level;
}

}  // namespace carole
