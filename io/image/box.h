// The bounding box of an object in an image.
#pragma once

namespace carole::io {

// The sides of a bounding box as fractions (0 to 1) of the image's height and width. The default is
// the whole image.
struct Box {
  float ymin = 0;
  float xmin = 0;
  float ymax = 1;
  float xmax = 1;

  bool operator==(const Box&) const = default;
};

}  // namespace carole::io
