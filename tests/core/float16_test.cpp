#include "src/core/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace carole {
namespace {

template <typename Narrow>
class Float16 : public ::testing::Test {};
using Types = ::testing::Types<Bf16, Fp16>;
TYPED_TEST_SUITE(Float16, Types);

TYPED_TEST(Float16, EveryValueSurvivesConversionToFp32AndBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    TypeParam value;
    value.bits = static_cast<uint16_t>(bits);
    const auto wide = static_cast<float>(value);
    const TypeParam back(wide);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(back))) << bits;
    } else {
      EXPECT_EQ(back.bits, bits);
    }
  }
}

// The fp32 in the middle between two adjacent 16-bit numbers rounds to the even one. The fp32
// numbers next to the middle round to the nearer one.
TYPED_TEST(Float16, RoundsToNearestTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7F00; bits += 7) {
    TypeParam low, high;
    low.bits = static_cast<uint16_t>(bits);
    high.bits = static_cast<uint16_t>(bits + 1);
    const float a = static_cast<float>(low), b = static_cast<float>(high);
    if (!std::isfinite(b)) break;
    const float middle = a + (b - a) / 2;
    EXPECT_EQ(TypeParam(middle).bits, bits % 2 == 0 ? bits : bits + 1) << a;
    EXPECT_EQ(TypeParam(std::nextafter(middle, a)).bits, bits) << a;
    EXPECT_EQ(TypeParam(std::nextafter(middle, b)).bits, bits + 1) << a;
    EXPECT_EQ(TypeParam(-middle).bits, TypeParam(middle).bits | 0x8000) << a;
  }
}

TYPED_TEST(Float16, KeepsInfinityAndNan) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(static_cast<float>(TypeParam(kInfinity)), kInfinity);
  EXPECT_EQ(static_cast<float>(TypeParam(-kInfinity)), -kInfinity);
  EXPECT_EQ(static_cast<float>(TypeParam(std::numeric_limits<float>::max())), kInfinity);
  EXPECT_TRUE(std::isnan(static_cast<float>(TypeParam(std::nanf("")))));
}

TEST(Fp16, HasTheRangeOfBinary16) {
  EXPECT_EQ(static_cast<float>(Fp16(65519.0f)), 65504.0f);
  EXPECT_EQ(static_cast<float>(Fp16(65520.0f)), std::numeric_limits<float>::infinity());
  EXPECT_EQ(static_cast<float>(Fp16(0x1p-24f)), 0x1p-24f) << "the smallest positive number";
  EXPECT_EQ(static_cast<float>(Fp16(0x1p-25f)), 0.0f);
}

TEST(Bf16, HasTheRangeOfFp32) {
  EXPECT_EQ(static_cast<float>(Bf16(0x1p-126f)), 0x1p-126f);
  EXPECT_EQ(static_cast<float>(Bf16(0x1p127f)), 0x1p127f);
  EXPECT_EQ(static_cast<float>(Bf16(1.00390625f)), 1.0f) << "1 + 2^-8 is a tie";
}

}  // namespace
}  // namespace carole
