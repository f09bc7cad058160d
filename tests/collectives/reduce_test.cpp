// The vector loops against plain ones, bit by bit, at every length around the vector width.
#include "collectives/reduce.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace carole::collectives {
namespace {

template <typename T>
class ReduceTest : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(ReduceTest, Types);

TYPED_TEST(ReduceTest, SumsInRankOrder) {
  using T = TypeParam;
  constexpr T kGuard = -77;
  std::mt19937 random(1);
  std::uniform_real_distribution<T> uniform(-1, 1);
  for (size_t n : {1, 2, 3, 8}) {
    for (size_t count : {0, 1, 15, 16, 17, 63, 64, 65, 511, 513, 3000}) {
      std::vector<std::vector<T>> ranks(n, std::vector<T>(count + 1, kGuard));
      std::vector<T> want(count + 1, kGuard);
      for (size_t i = 0; i < count; ++i) {
        for (size_t r = 0; r < n; ++r) ranks[r][i] = uniform(random);
        want[i] = ranks[0][i];
        for (size_t r = 1; r < n; ++r) want[i] += ranks[r][i];
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

}  // namespace
}  // namespace carole::collectives
