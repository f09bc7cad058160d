// Pairwise summation of vectors that arrive one after the other. They are added like the leaves of
// a binary tree: ((0 + 1) + (2 + 3)) + ... So 2^k consecutive vectors that start at a multiple of
// 2^k form a whole subtree. If each rank sums such a group, the distribution of vectors to ranks
// changes no bit of the total. The rounding error and the memory grow with log n.
//
// Vectors 0 to 4, where level l holds the sum of 2^l vectors:
//   after 0: [0]    after 1: [-, 0+1]    after 2: [2, 0+1]    after 3: [-, -, (0+1)+(2+3)]
//   Finish with vector 4 as the last one: 4 + ((0+1)+(2+3))
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/train/reduction/vector_ops.h"

namespace carole::train {

// T is float or double.
template <typename T>
class PairwiseSum {
 public:
  // `vector_ops` says in whose memory the vectors are. The default is host memory.
  explicit PairwiseSum(const VectorOps<T>& vector_ops = VectorOps<T>()) : vector_ops_(vector_ops) {}

  void Clear() { count_ = 0; }

  // Adds a vector that is not the last one. All vectors have the same size. Overwrites `values`.
  void Add(std::span<T> values) {
    size_t level = 0;
    for (; count_ >> level & 1; ++level)
      vector_ops_.Add(values.data(), Level(level), values.size());
    if (level == levels_.size()) levels_.push_back(vector_ops_.Allocate(values.size()));
    vector_ops_.Copy(Level(level), values.data(), values.size());
    ++count_;
  }

  // Adds a range of the last vector: `values` holds its elements from index `begin` on. On return
  // `values` holds these elements of the total. Ranges may be finished in any order.
  void Finish(size_t begin, std::span<T> values) const {
    for (size_t level = 0; count_ >> level != 0; ++level) {
      if (count_ >> level & 1) vector_ops_.Add(values.data(), Level(level) + begin, values.size());
    }
  }

 private:
  T* Level(size_t level) const { return reinterpret_cast<T*>(levels_[level].get()); }

  VectorOps<T> vector_ops_;
  uint64_t count_ = 0;                // vectors added; if bit l is set, level l holds a sum of 2^l
  std::vector<DeviceMemory> levels_;  // reused in every step
};

}  // namespace carole::train
