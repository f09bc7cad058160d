// The bits of dropout, the same in every backend and for every split of the global batch.
#pragma once

#include <cmath>
#include <cstdint>

#include "src/backend/backend.h"
#include "src/core/rng.h"

namespace carole {

// Says which elements of an activation are kept. An element, or with per_row each element of a row,
// stays when the uniform of its random word is below keep(). Cheap to make; not thread-safe: one
// for each range of elements. Ask in ascending order, since four neighbors share a block of words.
class DropoutMask {
 public:
  // shape (N,…) is the local activation, whose row 0 is sample context.first_sample.
  DropoutMask(const RunContext& context, const DropoutAttributes& attributes, const Shape& shape)
      : row_(RowSize(shape)),
        per_row_(attributes.per_row),
        first_(static_cast<uint64_t>(context.first_sample * (per_row_ ? 1 : row_))),
        keep_(attributes.KeepAt(context.step)),
        rng_(context.seed, per_row_ ? RngPurpose::kDropPath : RngPurpose::kDropout,
             static_cast<uint64_t>(context.step), static_cast<uint64_t>(attributes.layer)) {}

  double keep() const { return keep_; }
  // An element stays when the upper 24 bits of its word are below this.
  uint32_t threshold() const { return threshold_; }
  // The word of element 0, with per_row of row 0; the others follow.
  uint64_t first_word() const { return first_; }
  const Rng& rng() const { return rng_; }

  // i counts the elements of the local activation in NHWC order.
  bool Keep(int64_t i) const {
    return (rng_.At(first_ + static_cast<uint64_t>(per_row_ ? i / row_ : i)) >> 8) < threshold_;
  }
  bool KeepRow(int64_t row) const { return Keep(row * row_); }

 private:
  static int64_t RowSize(const Shape& shape) { return shape.size() / shape[0]; }

  int64_t row_;  // elements
  bool per_row_;
  uint64_t first_;
  double keep_;
  uint32_t threshold_ = static_cast<uint32_t>(std::ceil(keep_ * 0x1p24));
  Rng rng_;
};

}  // namespace carole
