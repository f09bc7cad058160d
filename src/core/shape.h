// Sizes of a tensor, outermost first in the order that the field lists them: activations (N,C,H,W),
// filters (K,C,R,S), matrices (rows, columns). How the elements lie in memory is Layout's matter
// (tensor/tensor.h).
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

  Shape() = default;  // a scalar: rank 0, one element
  // At most kMaxRank sizes, none negative; else throws InternalError.
  Shape(std::initializer_list<int64_t> dims);
  explicit Shape(std::span<const int64_t> dims);

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[i]; }
  int64_t& operator[](int i) { return dims_[i]; }
  std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }

  // Number of elements. Throws InternalError on overflow of 63 bits.
  int64_t size() const;

  bool operator==(const Shape& other) const = default;

  // "[2,64,56,56]"
  std::string ToString() const;

 private:
  std::array<int64_t, kMaxRank>
      dims_{};  // entries from rank_ on stay 0, so that == compares plainly
  int rank_ = 0;
};

inline std::ostream& operator<<(std::ostream& out, const Shape& s) { return out << s.ToString(); }

}  // namespace carole
