// Compares the vector loops with plain ones, bit by bit, at lengths around the vector width.
#include "collectives/algorithms/reduce.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

namespace carole::collectives {
namespace {

template <typename T>
class ReduceTest : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(ReduceTest, Types);

// Sums in the order that reduce.h promises.
template <typename T>
T TreeSum(const std::vector<T>& addends) {
  if (addends.size() == 1) return addends[0];
  const auto middle = addends.begin() + std::bit_floor(addends.size() - 1);
  return TreeSum<T>({addends.begin(), middle}) + TreeSum<T>({middle, addends.end()});
}

TYPED_TEST(ReduceTest, SumsAsABinaryTree) {
  using T = TypeParam;
  constexpr T kGuard = -77;
  std::mt19937 random(1);
  std::uniform_real_distribution<T> uniform(-1, 1);
  for (size_t n : {1, 2, 3, 4, 5, 7, 8}) {
    for (size_t count : {0, 1, 15, 16, 17, 63, 64, 65, 511, 513, 3000}) {
      std::vector<std::vector<T>> ranks(n, std::vector<T>(count + 1, kGuard));
      std::vector<T> want(count + 1, kGuard);
      for (size_t i = 0; i < count; ++i) {
        std::vector<T> addends;
        for (size_t r = 0; r < n; ++r) addends.push_back(ranks[r][i] = uniform(random));
        want[i] = TreeSum(addends);
      }
      std::vector<T*> pointers;
      for (auto& rank : ranks) pointers.push_back(rank.data());
      std::vector<T> into(count + 1, kGuard);
      SumRanks(pointers.data(), n, into.data(), count);
      EXPECT_EQ(into, want);
      if (n == 2) {
        std::vector<T> sum = ranks[0];
        AddTo(sum.data(), ranks[1].data(), count);
        EXPECT_EQ(sum, want);
      }
      SumRanksToAll(pointers.data(), n, count);
      for (const auto& rank : ranks) EXPECT_EQ(rank, want) << n << " ranks, " << count;
    }
  }
}

// As IEEE 754 requires, a value halfway between two bf16 rounds to the one with an even last bit.
TEST(Bf16, RoundsToNearestEven) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::pair<float, float> cases[] = {{1.0f, 1.0f},
                                           {1.0f + 0x1p-8f, 1.0f},
                                           {1.0f + 0x1.8p-8f, 1.0f + 0x1p-7f},
                                           {1.0f + 0x3p-8f, 1.0f + 0x1p-6f},
                                           {-3.14159f, -3.140625f},
                                           {-0.0f, -0.0f},
                                           {0x1p-133f, 0x1p-133f},
                                           {std::numeric_limits<float>::max(), infinity},
                                           {-infinity, -infinity}};
  for (const auto& [from, want] : cases) {
    // In a full vector and as a single element.
    for (size_t count : {1, 16}) {
      const std::vector<float> floats(count, from);
      std::vector<uint16_t> rounded(count);
      RoundToBf16(floats.data(), rounded.data(), count);
      std::vector<float> back(count);
      WidenBf16(rounded.data(), back.data(), count);
      EXPECT_EQ(std::bit_cast<uint32_t>(back.back()), std::bit_cast<uint32_t>(want)) << from;
      std::vector<float> sum(count, 1.0f);
      AddBf16To(sum.data(), rounded.data(), count);
      EXPECT_EQ(sum.back(), 1.0f + want);
    }
  }
  // A NaN whose set bits would be truncated, and one that rounding would overflow to -0.
  for (uint32_t bits : {0x7f800001u, 0x7fffffffu}) {
    const auto nan = std::bit_cast<float>(bits);
    uint16_t rounded = 0;
    RoundToBf16(&nan, &rounded, 1);
    float back = 0;
    WidenBf16(&rounded, &back, 1);
    EXPECT_TRUE(std::isnan(back));
  }
}

}  // namespace
}  // namespace carole::collectives
