// What windows and cuts leave of an image. Private to ops.
#pragma once

#include <fmt/format.h>

#include "src/core/error.h"
#include "src/graph/graph.h"

namespace carole::ops {

// Throws UsageError where nothing is left of `in` (N,C,H,W): it wants least_h x least_w pixels.
inline void CheckImageSize(const Graph& g, const Shape& in, int64_t left_h, int64_t left_w,
                           int64_t least_h, int64_t least_w) {
  if (left_h >= 1 && left_w >= 1) return;
  throw UsageError(
      fmt::format("[graph] {}: the image is too small here: got {}x{} pixels, want at least "
                  "{}x{}; use a larger --train_image_size",
                  g.scope(), in[2], in[3], least_h, least_w));
}

}  // namespace carole::ops
