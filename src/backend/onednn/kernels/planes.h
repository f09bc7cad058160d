// Activations as our own kernels see them: images x blocks of channels x pixels x lanes. Private to
// this folder.
#pragma once

#include "src/backend/onednn/kernels/onednn.h"

namespace carole::onednn {

// NHWC and (N,C): one block of C lanes. Blocked layouts: 16 or 8 lanes; those behind the last
// channel are zero, which every kernel must keep so.
struct Planes {
  Planes() = default;
  Planes(const Shape& shape, const Layout& layout);  // layout: a known one

  int64_t padded_channels() const { return blocks * lanes; }
  // Where a plane begins, in elements.
  int64_t Offset(int64_t image, int64_t block) const {
    return (image * blocks + block) * pixels * lanes;
  }

  int64_t images = 0, channels = 0, pixels = 1, lanes = 0, blocks = 1;
};

// The tensor's layout if it is one that Planes knows, else the plain one: NHWC, row-major (N,C),
// and channels blocked by 16 or 8.
Layout KnownLayout(const TensorSpec& x);

// `shape` in blocks of channels like those of another tensor; plain where that is plain.
Layout LayoutLike(const Shape& shape, const Layout& like);

}  // namespace carole::onednn
