// Values whose sum over all ranks is known, to check all-reduces with. They differ between ranks
// and between elements, so that a piece from the wrong rank or the wrong place is found. They are
// integers, and their sums are at most kMaxKnownSum. So every order of addition is exact in fp32,
// fp16 and bf16.
//
// Up to kMaxAddends ranks contribute to an element. In larger jobs, rank r contributes to each
// n-th element only, from element r % n on, where n is `num_groups`.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "src/core/divide_up.h"

namespace carole::collectives {

inline constexpr int kMaxKnownSum = 256;  // bf16 holds all integers up to this one
inline constexpr int kMaxAddends = 64;

class KnownValues {
 public:
  explicit KnownValues(int num_ranks)
      : num_ranks_(static_cast<size_t>(num_ranks)),
        num_groups_(DivideUp(num_ranks_, size_t{kMaxAddends})),
        mask_(std::bit_floor(
                  static_cast<uint32_t>(kMaxKnownSum / DivideUp(num_ranks_, num_groups_))) -
              1) {}

  // Writes the values of a rank.
  void Fill(int rank, std::span<float> data) const {
    if (num_groups_ > 1) std::ranges::fill(data, 0.0F);
    ForEach(static_cast<size_t>(rank), data.size(),
            [&](size_t i, float value) { data[i] = value; });
  }

  // Writes the sums of the values of all ranks.
  void FillWithSums(std::span<float> data) const {
    std::ranges::fill(data, 0.0F);
    for (size_t rank = 0; rank < num_ranks_; ++rank)
      ForEach(rank, data.size(), [&](size_t i, float value) { data[i] += value; });
  }

 private:
  // Calls use(element, value) for the elements to which a rank contributes.
  template <typename Use>
  void ForEach(size_t rank, size_t count, const Use& use) const {
    const auto salt = static_cast<uint32_t>(rank) * 0x85EBCA77U;
    for (size_t i = rank % num_groups_; i < count; i += num_groups_)
      use(i, static_cast<float>(1 + (Mix(static_cast<uint32_t>(i) + salt) & mask_)));
  }

  // Returns bits that look random. Two neighbors have nothing in common.
  static constexpr uint32_t Mix(uint32_t x) {
    x = (x ^ x >> 16) * 0x9E3779B1U;
    return x ^ x >> 15;
  }

  size_t num_ranks_, num_groups_;
  uint32_t mask_;  // values are 1 + bits of this mask
};

}  // namespace carole::collectives
