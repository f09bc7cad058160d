#include "src/core/simd.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <set>
#include <string>

namespace carole {
namespace {

int Two() { return 2; }
int Three() { return 3; }
int Four() { return 4; }

// The level is determined once per process, so each case needs its own process. Death tests in the
// style "threadsafe" start the test program again.
void ExpectLevel(const char* limit, int level, const char* log = "") {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        limit == nullptr ? unsetenv("CAROLE_SIMD_LEVEL") : setenv("CAROLE_SIMD_LEVEL", limit, 1);
        std::exit(PickSimd(Two, Three, Four)() == SimdLevel() ? SimdLevel() : 99);
      },
      ::testing::ExitedWithCode(level), log)
      << "CAROLE_SIMD_LEVEL=" << (limit == nullptr ? "(unset)" : limit);
}

// Asks Linux. clang knows the names of levels in __builtin_cpu_supports only since version 18.
int CpuLevel() {
  std::ifstream file("/proc/cpuinfo");
  std::set<std::string> words;
  for (std::string word; file >> word;) words.insert(word);
  const auto has = [&](std::initializer_list<const char*> flags) {
    return std::all_of(flags.begin(), flags.end(),
                       [&](const char* flag) { return words.contains(flag); });
  };
  if (!has({"avx2", "fma", "bmi1", "bmi2"})) return 2;
  return has({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}) ? 4 : 3;
}

TEST(SimdDeathTest, UsesTheHighestLevelOfTheCpu) { ExpectLevel(nullptr, CpuLevel()); }

TEST(SimdDeathTest, EnvironmentVariableLowersButNeverRaisesTheLevel) {
  ExpectLevel("2", 2);
  ExpectLevel("3", std::min(3, CpuLevel()));
  ExpectLevel("4", CpuLevel());
  ExpectLevel("99", CpuLevel(), "CAROLE_SIMD_LEVEL: got 99, want 2, 3 or 4; using ");
  ExpectLevel("1", 2, "CAROLE_SIMD_LEVEL: got 1, want 2, 3 or 4; using 2");
  ExpectLevel("avx2", CpuLevel(), "CAROLE_SIMD_LEVEL: got avx2, want 2, 3 or 4; using ");
}

}  // namespace
}  // namespace carole
