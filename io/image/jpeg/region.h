// A rectangular part of an image, which a decoder can be asked for.
#pragma once

namespace carole::io {

// `height` rows and `width` columns of pixels. Their top left pixel is pixel (top, left) of the
// image.
struct Region {
  int top = 0;
  int left = 0;
  int height = 0;
  int width = 0;

  bool operator==(const Region&) const = default;
};

}  // namespace carole::io
