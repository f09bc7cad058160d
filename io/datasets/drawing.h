// Drawn pictures whose class can be learnt: for tests, demos and benchmarks without photographs.
#pragma once

#include <cstdint>

#include "io/image/box.h"
#include "io/image/image.h"

namespace carole::io {

// One object in front of a noisy ground. The class decides its hue, shape and pattern; its place,
// size, turn and light, the ground and the grain are drawn from (seed, stream, number).
struct Drawing {
  Image image;  // RGB
  Box box;      // of the object
};

struct DrawingOptions {
  int height = 0;
  int width = 0;
  int label = 0;  // from 0
  uint64_t seed = 0;
  uint64_t stream = 0;  // the split
  uint64_t number = 0;  // of the picture
};

Drawing Draw(const DrawingOptions& options);

}  // namespace carole::io
