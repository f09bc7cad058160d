// TensorFlow's color operations on floats in [0, 1] and somewhat beyond, in place. Contrast takes
// the mean of each channel over the whole image; hue and saturation want three channels.
#pragma once

#include "io/image/resize.h"

namespace carole::io {

void AdjustBrightness(FloatImage& image, float delta);   // x + delta
void AdjustContrast(FloatImage& image, float factor);    // (x - mean) * factor + mean
void AdjustSaturation(FloatImage& image, float factor);  // S of HSV times factor, cut to [0, 1]
void AdjustHue(FloatImage& image, float delta);          // delta in turns
void ClipToUnit(FloatImage& image);                      // to [0, 1]

}  // namespace carole::io
