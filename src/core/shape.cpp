#include "src/core/shape.h"

#include <algorithm>

#include "src/core/check.h"

namespace carole {

Shape::Shape(std::initializer_list<int64_t> dims)
    : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  CAROLE_CHECK(rank_ <= kMaxRank, "shape of rank {}, at most {} are supported", rank_, kMaxRank);
  std::copy(dims.begin(), dims.end(), dims_.begin());
  for (int64_t d : dims) CAROLE_CHECK(d >= 0, "negative size {} in a shape", d);
}

int64_t Shape::size() const {
  int64_t n = 1;
  for (int64_t d : dims()) {
    CAROLE_CHECK(!__builtin_mul_overflow(n, d, &n), "shape {} has too many elements", ToString());
  }
  return n;
}

std::string Shape::ToString() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) text += (i ? "," : "") + std::to_string(dims_[i]);
  return text + "]";
}

}  // namespace carole
