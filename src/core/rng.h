// Counter-based random numbers: Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as
// easy as 1, 2, 3").
//
// A value is a pure function of (seed, purpose, a, b, index), so neither threads nor ranks change
// anything: augmentation is keyed by (epoch, sample), dropout by (step, layer) with the element's
// place in the global batch as index.
#pragma once

#include <array>
#include <cstdint>

namespace carole {

// What the numbers are for; part of the key, so that purposes never share a stream.
enum class RngPurpose : uint32_t {
  kInit = 1,
  kShuffle = 2,
  kAugment = 3,
  kDropout = 4,
  kDropPath = 5,
  kData = 6
};

// One block of Philox4x32-10. Constexpr, as the other functions here, so that GPUs can call it.
constexpr std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
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

// splitmix64 of Steele et al. 2014: mixes 64 bits; used to fold keys together.
constexpr uint64_t SplitMix64(uint64_t z) {
  z += 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

// The key folds seed, purpose and a; b stays in the counter, so that neighboring samples differ in
// the counter alone.
constexpr std::array<uint32_t, 2> PhiloxKey(uint64_t seed, RngPurpose purpose, uint64_t a) {
  const uint64_t key =
      SplitMix64(SplitMix64(seed ^ (uint64_t{static_cast<uint32_t>(purpose)} << 56)) + a);
  return {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
}

constexpr std::array<uint32_t, 4> PhiloxBlock(std::array<uint32_t, 2> key, uint64_t b,
                                              uint64_t block) {
  return Philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                 static_cast<uint32_t>(b), static_cast<uint32_t>(b >> 32)},
                key);
}

// A stream of numbers. Cheap to make; not thread-safe (make one for each sample or layer).
class Rng {
 public:
  // a and b are the coordinates of the stream within its purpose, for instance (epoch, sample) or
  // (step, layer).
  Rng(uint64_t seed, RngPurpose purpose, uint64_t a = 0, uint64_t b = 0);

  // The index-th 32-bit word of the stream, without changing its position.
  uint32_t At(uint64_t index) const;

  uint32_t Next() { return At(position_++); }
  // Uniform in [0, 1) with 24 bits.
  float NextFloat() { return static_cast<float>(Next() >> 8) * 0x1p-24f; }
  // Uniform in [0, 1) with 53 bits.
  double NextDouble();
  // Uniform in [0, bound), without bias (Lemire 2019). bound must be positive.
  uint64_t NextBelow(uint64_t bound);
  // What the stream's blocks are computed from, for vector code: block b is Philox({b, b >> 32,
  // stream}, key).
  std::array<uint32_t, 2> key() const { return key_; }
  std::array<uint32_t, 2> stream() const {
    return {static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)};
  }

  // Normal with mean 0 and deviation 1 (Box-Muller).
  double NextNormal();

 private:
  std::array<uint32_t, 2> key_;
  uint64_t stream_;  // distinguishes streams beyond the 64-bit key
  uint64_t position_ = 0;
  mutable uint64_t cached_block_ = ~0ULL;
  mutable std::array<uint32_t, 4> cache_{};
};

}  // namespace carole
