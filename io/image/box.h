// The rectangle around an object in an image.
#pragma once

namespace carole::io {

// As fractions of the image's height and width.
struct Box {
  float ymin = 0;
  float xmin = 0;
  float ymax = 1;
  float xmax = 1;

  bool operator==(const Box&) const = default;
};

}  // namespace carole::io
