#include "src/core/rng.h"

#include <cmath>
#include <numbers>

#include "src/core/check.h"

namespace carole {

Rng::Rng(uint64_t seed, RngPurpose purpose, uint64_t a, uint64_t b)
    : key_(PhiloxKey(seed, purpose, a)), stream_(b) {}

uint32_t Rng::At(uint64_t index) const {
  if (index / 4 != cached_block_) {
    cached_block_ = index / 4;
    cache_ = PhiloxBlock(key_, stream_, cached_block_);
  }
  return cache_[index % 4];
}

double Rng::NextDouble() {
  const uint64_t high = Next();
  return static_cast<double>(((high << 32) | Next()) >> 11) * 0x1p-53;
}

uint64_t Rng::NextBelow(uint64_t bound) {
  CAROLE_CHECK(bound > 0, "bound of a random number");
  const uint64_t threshold = -bound % bound;
  for (;;) {
    const uint64_t high = Next();
    const unsigned __int128 product = static_cast<unsigned __int128>((high << 32) | Next()) * bound;
    if (static_cast<uint64_t>(product) >= threshold) return static_cast<uint64_t>(product >> 64);
  }
}

double Rng::NextNormal() {
  const double u = 1.0 - NextDouble();  // in (0, 1], so that the logarithm is finite
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * NextDouble());
}

}  // namespace carole
