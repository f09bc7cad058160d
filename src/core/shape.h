// Shape: the sizes of a tensor's dimensions.
//
// The dimensions always have the order of the literature, whatever the order in memory: activations
// (N,C,H,W), filters (K,C,R,S), matrices (rows, columns). The order of the elements in memory is a
// Layout (src/tensor/tensor.h).
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <span>
#include <string>

namespace carole {

class Shape {
 public:
  static constexpr int kMaxRank = 5;

  // Makes the shape of a scalar: rank 0, one element.
  Shape() = default;
  // Throws InternalError if there are more than kMaxRank sizes or if one is negative.
  Shape(std::initializer_list<int64_t> dims);
  explicit Shape(std::span<const int64_t> dims);

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[i]; }
  int64_t& operator[](int i) { return dims_[i]; }
  std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }

  // Returns the number of elements. Throws InternalError if it needs more than 63 bits.
  int64_t size() const;

  bool operator==(const Shape& other) const = default;

  // Returns text such as "[2,64,56,56]".
  std::string ToString() const;

 private:
  // Entries from rank_ on are always 0, so that the default == is correct.
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

inline std::ostream& operator<<(std::ostream& out, const Shape& s) { return out << s.ToString(); }

}  // namespace carole
