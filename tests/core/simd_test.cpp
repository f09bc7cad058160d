#include "src/core/simd.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

namespace carole {
namespace {

int Two() { return 2; }
int Three() { return 3; }
int Four() { return 4; }

// The level is determined once per process, so each case needs its own process. Death tests in the
// style "threadsafe" start the test program again.
void ExpectLevel(const char* limit, int level) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        limit == nullptr ? unsetenv("CAROLE_SIMD_LEVEL") : setenv("CAROLE_SIMD_LEVEL", limit, 1);
        std::exit(PickSimd(Two, Three, Four)() == SimdLevel() ? SimdLevel() : 99);
      },
      ::testing::ExitedWithCode(level), "")
      << "CAROLE_SIMD_LEVEL=" << (limit == nullptr ? "(unset)" : limit);
}

int CpuLevel() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("x86-64-v4") ? 4 : __builtin_cpu_supports("x86-64-v3") ? 3 : 2;
}

TEST(SimdDeathTest, UsesTheHighestLevelOfTheCpu) { ExpectLevel(nullptr, CpuLevel()); }

TEST(SimdDeathTest, EnvironmentVariableLowersButNeverRaisesTheLevel) {
  ExpectLevel("2", 2);
  ExpectLevel("3", std::min(3, CpuLevel()));
  ExpectLevel("4", CpuLevel());
  ExpectLevel("99", CpuLevel());
}

}  // namespace
}  // namespace carole
