#include "src/core/rng.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "src/core/error.h"

namespace carole {
namespace {

using Block = std::array<uint32_t, 4>;

// The test vectors that the authors of Philox publish for philox4x32-10.
TEST(Philox, HasThePublishedValues) {
  EXPECT_EQ(Philox({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(Philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Rng, WordsAreThePhiloxBlocksOfKeyAndStream) {
  const Rng rng(5, RngPurpose::kDropout, 6, 0x700000008);
  for (uint64_t block : {uint64_t{0}, uint64_t{3}, uint64_t{0x500000002}}) {
    const Block words = Philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                                rng.stream()[0], rng.stream()[1]},
                               rng.key());
    for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(rng.At(4 * block + i), words[i]);
  }
}

TEST(Rng, RandomAccessReturnsTheSameWordsAsNext) {
  Rng forward(1, RngPurpose::kInit, 2, 3);
  std::vector<uint32_t> words(23);
  for (uint32_t& w : words) w = forward.Next();
  const Rng other(1, RngPurpose::kInit, 2, 3);
  for (size_t i = words.size(); i-- > 0;) EXPECT_EQ(other.At(i), words[i]) << i;
  EXPECT_EQ(forward.At(0), words[0]);
  EXPECT_EQ(forward.Next(), other.At(words.size())) << "At() must not change the position";
}

TEST(Rng, EachPurposeSeedAndCoordinateGivesADifferentStream) {
  std::set<uint32_t> firsts;
  int streams = 0;
  auto add = [&](const Rng& rng) {
    firsts.insert(rng.At(0));
    ++streams;
  };
  for (RngPurpose purpose : {RngPurpose::kInit, RngPurpose::kShuffle, RngPurpose::kAugment,
                             RngPurpose::kDropout, RngPurpose::kDropPath, RngPurpose::kData}) {
    for (uint64_t seed : {0ULL, 1ULL, 1ULL << 40}) {
      for (uint64_t a : {0ULL, 1ULL, 1ULL << 40}) {
        for (uint64_t b : {0ULL, 1ULL, 1ULL << 40}) add(Rng(seed, purpose, a, b));
      }
    }
  }
  EXPECT_EQ(static_cast<int>(firsts.size()), streams);
}

// Chi-square test with 6 degrees of freedom: one seed in a thousand exceeds 22.5 by chance.
TEST(Rng, NextBelowIsUniform) {
  Rng rng(11, RngPurpose::kShuffle);
  constexpr int kDraws = 70'000, kValues = 7;
  int counts[kValues] = {};
  for (int i = 0; i < kDraws; ++i) ++counts[rng.NextBelow(kValues)];
  double chi_square = 0;
  for (int count : counts) chi_square += std::pow(count - kDraws / kValues, 2) / (kDraws / kValues);
  EXPECT_LT(chi_square, 22.5);
}

// The bound is 3/4 of the range. Without rejection, one value in three would come twice as often.
// Then half of the draws, instead of a third, would have these values.
TEST(Rng, NextBelowHasNoBiasAtLargeBounds) {
  Rng rng(12, RngPurpose::kShuffle);
  constexpr uint64_t kBound = 3ULL << 62;
  int thirds[3] = {};
  for (int i = 0; i < 30'000; ++i) {
    const uint64_t v = rng.NextBelow(kBound);
    ASSERT_LT(v, kBound);
    ++thirds[v % 3];
  }
  for (int count : thirds) EXPECT_NEAR(count, 10'000, 350);  // 4.3 standard deviations
}

TEST(Rng, NextBelowAcceptsOneAndRejectsZero) {
  Rng rng(1, RngPurpose::kShuffle);
  EXPECT_EQ(rng.NextBelow(1), 0u);
  EXPECT_THROW(rng.NextBelow(0), InternalError);
}

TEST(Rng, UniformNumbersCoverTheirRange) {
  Rng rng(3, RngPurpose::kAugment);
  double low = 1, high = 0, sum = 0;
  constexpr int kDraws = 100'000;
  for (int i = 0; i < kDraws; ++i) {
    const double f = rng.NextFloat(), d = rng.NextDouble();
    low = std::min({low, f, d});
    high = std::max({high, f, d});
    sum += f + d;
  }
  EXPECT_GE(low, 0.0);
  EXPECT_LT(low, 1e-3);
  EXPECT_LT(high, 1.0);
  EXPECT_GT(high, 1 - 1e-3);
  EXPECT_NEAR(sum / (2 * kDraws), 0.5, 4 * std::sqrt(1.0 / 12 / (2 * kDraws)));
}

TEST(Rng, NormalNumbersHaveNormalMoments) {
  Rng rng(4, RngPurpose::kInit);
  constexpr int kDraws = 200'000;
  double m[5] = {};
  for (int i = 0; i < kDraws; ++i) {
    const double z = rng.NextNormal();
    ASSERT_TRUE(std::isfinite(z));
    for (int k = 1; k <= 4; ++k) m[k] += std::pow(z, k) / kDraws;
  }
  // Four standard deviations of the estimate of each moment.
  const double root = 4 / std::sqrt(double{kDraws});
  EXPECT_NEAR(m[1], 0, root);
  EXPECT_NEAR(m[2], 1, root * std::sqrt(2.0));
  EXPECT_NEAR(m[3], 0, root * std::sqrt(15.0));
  EXPECT_NEAR(m[4], 3, root * std::sqrt(96.0));
}

TEST(Rng, SplitMixHasThePublishedValues) {
  // The first two outputs of the generator with seed 0.
  EXPECT_EQ(SplitMix64(0), 0xe220a8397b1dcdafULL);
  EXPECT_EQ(SplitMix64(0x9e3779b97f4a7c15ULL), 0x6e789e6aa1b965f4ULL);
}

}  // namespace
}  // namespace carole
