// Dropout's mask. It is the same in every backend and for every split of the global batch among
// ranks.
#pragma once

#include <cmath>
#include <cstdint>

#include "src/backend/backend.h"
#include "src/backend/ops/dropout.h"
#include "src/core/rng.h"

namespace carole {

// Decides which elements of an activation are kept. Each element, or each row with per_row, has one
// random 32-bit word, which gives a uniform number in [0, 1). The element or row is kept if that
// number is below keep(). Cheap to make. Not thread-safe: make one for each range of elements. Ask
// for elements in ascending order, because four neighbors share one block of the random generator.
class DropoutMask {
 public:
  // shape (N,…) is that of the local activation. Its row 0 is sample context.first_sample of the
  // global batch.
  DropoutMask(const RunContext& context, const DropoutAttributes& attributes, const Shape& shape)
      : row_(RowSize(shape)),
        per_row_(attributes.per_row),
        first_(static_cast<uint64_t>(context.first_sample * (per_row_ ? 1 : row_))),
        keep_(attributes.KeepAt(context.step)),
        rng_(context.seed, per_row_ ? RngPurpose::kDropPath : RngPurpose::kDropout,
             static_cast<uint64_t>(context.step), static_cast<uint64_t>(attributes.layer)) {}

  double keep() const { return keep_; }
  // An element is kept if the upper 24 bits of its word are below this.
  uint32_t threshold() const { return threshold_; }
  // The number of the word of element 0 (of row 0 with per_row). The words of the others follow.
  uint64_t first_word() const { return first_; }
  const Rng& rng() const { return rng_; }

  // i counts the elements of the local activation in NHWC order.
  bool Keep(int64_t i) const {
    return (rng_.At(first_ + static_cast<uint64_t>(per_row_ ? i / row_ : i)) >> 8) < threshold_;
  }
  bool KeepRow(int64_t row) const { return Keep(row * row_); }

 private:
  static int64_t RowSize(const Shape& shape) { return shape.size() / shape[0]; }

  int64_t row_;  // elements of one row
  bool per_row_;
  uint64_t first_;
  double keep_;
  uint32_t threshold_ = static_cast<uint32_t>(std::ceil(keep_ * 0x1p24));
  Rng rng_;
};

}  // namespace carole
