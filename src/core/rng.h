// Counter-based random numbers: Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as
// easy as 1, 2, 3").
//
// Each random value is a pure function of (seed, purpose, a, b, index). So the results do not
// depend on the number of threads or ranks. Augmentation uses (epoch, sample) as (a, b). Dropout
// uses (step, layer), and as index the position of the element in the global batch.
#pragma once

#include <array>
#include <cstdint>

namespace carole {

// The purpose of the random numbers. It is part of the key, so two purposes never share a stream.
enum class RngPurpose : uint32_t {
  kInit = 1,
  kShuffle = 2,
  kAugment = 3,
  kDropout = 4,
  kDropPath = 5,
  kData = 6
};

// Returns one block (four words) of Philox4x32-10 for the counter c and the key k. This and the
// following functions are constexpr, so that GPU code can call them.
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

// splitmix64 (Steele et al. 2014): a mixing function on 64 bits. It folds several numbers into one
// key.
constexpr uint64_t SplitMix64(uint64_t z) {
  z += 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

// Returns the key of all streams with this seed, purpose and a. b is not part of the key but of the
// counter, so that neighboring samples differ in the counter only.
constexpr std::array<uint32_t, 2> PhiloxKey(uint64_t seed, RngPurpose purpose, uint64_t a) {
  const uint64_t key =
      SplitMix64(SplitMix64(seed ^ (uint64_t{static_cast<uint32_t>(purpose)} << 56)) + a);
  return {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
}

// Returns block number `block` of the stream b.
constexpr std::array<uint32_t, 4> PhiloxBlock(std::array<uint32_t, 2> key, uint64_t b,
                                              uint64_t block) {
  return Philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                 static_cast<uint32_t>(b), static_cast<uint32_t>(b >> 32)},
                key);
}

// A stream of random numbers. It is cheap to make and not thread-safe: make one for each sample or
// layer.
class Rng {
 public:
  // a and b identify the stream within its purpose, for instance (epoch, sample) or (step, layer).
  Rng(uint64_t seed, RngPurpose purpose, uint64_t a = 0, uint64_t b = 0);

  // Returns the 32-bit word at this index of the stream. Does not change the position of Next().
  uint32_t At(uint64_t index) const;

  // Returns the next 32-bit word.
  uint32_t Next() { return At(position_++); }
  // Returns a uniform number in [0, 1) with 24 random bits.
  float NextFloat() { return static_cast<float>(Next() >> 8) * 0x1p-24f; }
  // Returns a uniform number in [0, 1) with 53 random bits.
  double NextDouble();
  // Returns a uniform integer in [0, bound), without bias (Lemire 2019). bound must be positive.
  uint64_t NextBelow(uint64_t bound);

  // The key and the stream number, for vector code that computes whole blocks: block b of the
  // stream is Philox({b, b >> 32, stream[0], stream[1]}, key).
  std::array<uint32_t, 2> key() const { return key_; }
  std::array<uint32_t, 2> stream() const {
    return {static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)};
  }

  // Returns a normally distributed number with mean 0 and standard deviation 1 (Box-Muller).
  double NextNormal();

 private:
  std::array<uint32_t, 2> key_;
  uint64_t stream_;  // b; the upper half of the counter
  uint64_t position_ = 0;
  mutable uint64_t cached_block_ = ~0ULL;  // number of the block in cache_
  mutable std::array<uint32_t, 4> cache_{};
};

}  // namespace carole
