// The bits of dropout, the same in every backend and for every split of the global batch.
#pragma once

#include <cstdint>

#include "src/backend/backend.h"
#include "src/core/rng.h"

namespace carole {

// Says which elements of an activation are kept. Cheap to make; not thread-safe: one for each range
// of elements. Ask in ascending order, since four neighbours share a block of random words.
class DropoutMask {
 public:
  // shape (N,…) is the local activation, whose row 0 is sample context.first_sample.
  DropoutMask(const RunContext& context, const DropoutAttributes& attributes, const Shape& shape)
      : rng_(context.seed, RngPurpose::kDropout, static_cast<uint64_t>(context.step),
             static_cast<uint64_t>(attributes.layer)),
        first_(static_cast<uint64_t>(context.first_sample * ElementsPerRow(shape))),
        keep_(attributes.keep) {}

  // i counts the elements of the local activation in NHWC order.
  bool Keep(int64_t i) const {
    const uint32_t word = rng_.At(first_ + static_cast<uint64_t>(i));
    return static_cast<float>(word >> 8) * 0x1p-24f < keep_;
  }

 private:
  static int64_t ElementsPerRow(const Shape& shape) {
    int64_t n = 1;
    for (int i = 1; i < shape.rank(); ++i) n *= shape[i];
    return n;
  }

  Rng rng_;
  uint64_t first_;
  double keep_;
};

}  // namespace carole
