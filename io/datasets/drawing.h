// Generates images whose class can be learned, for tests, demos and benchmarks without photos.
#pragma once

#include <cstdint>

#include "io/image/box.h"
#include "io/image/image.h"

namespace carole::io {

// An image of one object in front of a noisy background. The class determines the object's hue,
// shape and pattern. Its position, size, rotation and brightness, the background and the grain are
// random, keyed by (seed, stream, number).
struct Drawing {
  Image image;  // RGB
  Box box;      // bounding box of the object
};

struct DrawingOptions {
  int height = 0;
  int width = 0;
  int label = 0;  // class, from 0
  uint64_t seed = 0;
  uint64_t stream = 0;  // 0: training split; 1: validation split
  uint64_t number = 0;  // of the image in the split
};

Drawing Draw(const DrawingOptions& options);

}  // namespace carole::io
