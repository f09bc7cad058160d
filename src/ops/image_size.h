// The check that an image is large enough for a window. Private to this room.
#pragma once

#include <fmt/format.h>

#include "src/core/error.h"
#include "src/graph/graph.h"

namespace carole::ops {

// Throws UsageError if the output of an operation would have no pixels.
//   in            shape of the input (N,C,H,W)
//   out_h, out_w  size of the output; less than 1 is an error
//   min_h, min_w  smallest input for which the output has a pixel, for the message
inline void CheckImageSize(const Graph& g, const Shape& in, int64_t out_h, int64_t out_w,
                           int64_t min_h, int64_t min_w) {
  if (out_h >= 1 && out_w >= 1) return;
  throw UsageError(
      fmt::format("[graph] {}: the input of this layer is too small: got {}x{} pixels, want at "
                  "least {}x{}; use a larger {}",
                  g.scope(), in[2], in[3], min_h, min_w, Option("train_image_size")));
}

}  // namespace carole::ops
