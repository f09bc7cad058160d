// Sums of vectors that come one after the other, added as the leaves of a binary tree are:
// ((0 + 1) + (2 + 3)) + … So a power of two of them, begun at a multiple of it, is a whole subtree:
// how the leaves are dealt to ranks changes no bit. Errors grow with log n, memory too.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/train/reduction/vectors.h"

namespace carole::train {

// T is float or double.
template <typename T>
class PairwiseSum {
 public:
  // Where the vectors lie.
  explicit PairwiseSum(const Vectors<T>& memory = Vectors<T>()) : memory_(memory) {}

  void Clear() { count_ = 0; }

  // One more vector, but not the last; all have one size. `values` is overwritten.
  void Add(std::span<T> values) {
    size_t level = 0;
    for (; count_ >> level & 1; ++level) memory_.Add(values.data(), Level(level), values.size());
    if (level == levels_.size()) levels_.push_back(memory_.Allocate(values.size()));
    memory_.Copy(Level(level), values.data(), values.size());
    ++count_;
  }

  // `values` are the elements from `begin` on of the last vector; on return those of the sum.
  void Finish(size_t begin, std::span<T> values) const {
    for (size_t level = 0; count_ >> level != 0; ++level) {
      if (count_ >> level & 1) memory_.Add(values.data(), Level(level) + begin, values.size());
    }
  }

 private:
  T* Level(size_t level) const { return reinterpret_cast<T*>(levels_[level].get()); }

  Vectors<T> memory_;
  uint64_t count_ = 0;                // vectors added; bit l: level l holds the sum of 2^l
  std::vector<DeviceMemory> levels_;  // kept from step to step
};

}  // namespace carole::train
