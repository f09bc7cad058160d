// A part of an image: what a decoder is asked for.
#pragma once

namespace carole::io {

// `height` rows and `width` columns of pixels whose top left pixel is (top, left) of an image.
struct Region {
  int top = 0;
  int left = 0;
  int height = 0;
  int width = 0;

  bool operator==(const Region&) const = default;
};

}  // namespace carole::io
