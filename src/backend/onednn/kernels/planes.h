// The view of activations that our own kernels use: images x blocks of channels x pixels x lanes.
// Private to this folder.
#pragma once

#include "src/backend/onednn/kernels/onednn.h"

namespace carole::onednn {

// Sizes of an activation in one of the layouts that KnownLayout() returns. NHWC and (N,C) are one
// block of C lanes. Blocked layouts have 16 or 8 lanes. The lanes after the last channel are
// padding: they are 0, and every kernel must keep them 0. A plane is one block of channels of one
// image.
struct Planes {
  Planes() = default;
  Planes(const Shape& shape, const Layout& layout);

  int64_t padded_channels() const { return blocks * lanes; }
  // The offset of a plane, in elements.
  int64_t Offset(int64_t image, int64_t block) const {
    return (image * blocks + block) * pixels * lanes;
  }

  int64_t images = 0, channels = 0, pixels = 1, lanes = 0, blocks = 1;
};

// The tensor's layout if Planes can describe it, else the plain one. Planes can describe NHWC,
// row-major (N,C), and blocks of 16 or 8 channels.
Layout KnownLayout(const TensorSpec& x);

// The layout of a tensor of this shape that has the same blocks of channels as `like`. Plain if
// `like` is plain.
Layout LayoutLike(const Shape& shape, const Layout& like);

}  // namespace carole::onednn
