#include "src/core/rng.h"

#include <cmath>
#include <numbers>

#include "src/core/check.h"

namespace carole {

std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(p0)};
    k[0] += 0x9E3779B9;
    k[1] += 0xBB67AE85;
  }
  return c;
}

Rng::Rng(uint64_t seed, RngPurpose purpose, uint64_t a, uint64_t b) {
  // The key folds seed, purpose and a; b stays in the counter, so that neighbouring samples differ
  // in the counter alone.
  const uint64_t key =
      SplitMix64(SplitMix64(seed ^ (uint64_t{static_cast<uint32_t>(purpose)} << 56)) + a);
  key_ = {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
  stream_ = static_cast<uint32_t>(b);
  stream2_ = static_cast<uint32_t>(b >> 32);
}

std::array<uint32_t, 4> Rng::Block(uint64_t block) const {
  return Philox(
      {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), stream_, stream2_}, key_);
}

uint32_t Rng::At(uint64_t index) const {
  if (index / 4 != cached_block_) {
    cached_block_ = index / 4;
    cache_ = Block(cached_block_);
  }
  return cache_[index % 4];
}

double Rng::NextDouble() {
  const uint64_t high = Next();
  return static_cast<double>(((high << 32) | Next()) >> 11) * 0x1p-53;
}

uint64_t Rng::NextBelow(uint64_t bound) {
  CAROLE_CHECK(bound > 0, "a random number below 0 was asked for");
  const uint64_t threshold = -bound % bound;
  for (;;) {
    const uint64_t high = Next();
    const unsigned __int128 product = static_cast<unsigned __int128>((high << 32) | Next()) * bound;
    if (static_cast<uint64_t>(product) >= threshold) return static_cast<uint64_t>(product >> 64);
  }
}

double Rng::NextNormal() {
  const double u = 1.0 - NextDouble();  // (0, 1]: the logarithm stays finite
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * NextDouble());
}

}  // namespace carole
