// TensorFlow's color operations, in place, on float images with values in or near [0, 1]. Contrast
// uses the mean of each channel over the whole image. Hue and saturation need three channels (RGB).
#pragma once

#include "io/image/resize.h"

namespace carole::io {

void AdjustBrightness(FloatImage& image, float delta);   // x + delta
void AdjustContrast(FloatImage& image, float factor);    // (x - mean) * factor + mean
void AdjustSaturation(FloatImage& image, float factor);  // HSV's S times factor, clamped to [0, 1]
void AdjustHue(FloatImage& image, float delta);          // rotates HSV's H by delta turns
void ClipToUnit(FloatImage& image);                      // clamps to [0, 1]

}  // namespace carole::io
