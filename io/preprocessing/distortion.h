// What training draws for an image, apart from what is then done with it: the laws of TF-Slim's
// preprocessing, as functions of a stream of random numbers.
#pragma once

#include <span>

#include "io/image/image.h"
#include "io/preprocessing/preprocessing.h"
#include "src/core/rng.h"

namespace carole::io {

// How the ResNets' and VGG's preprocessing cut a crop out of a resized image.
struct ScaledCrop {
  int height = 0;  // of the whole image, resized
  int width = 0;
  int top = 0;  // of the crop in it
  int left = 0;
  bool mirrored = false;
};

// Sides become those of an image whose shorter one is `shorter`. Throws DataError where the longer
// one would be over 2^30; so do the two below.
enum class SideRounding { kHalfEven, kTruncate };  // TF-Slim; the ImageNet ResNet
ScaledCrop ScaleShorterSide(int height, int width, int shorter, SideRounding rounding);

// Shorter side uniform in 256..512, both ends; the crop of (out_height, out_width) uniform over all
// places; mirrored with probability 1/2.
ScaledCrop DrawScaledCrop(int height, int width, int out_height, int out_width,
                          SideRounding rounding, Rng& rng);
// Shorter side 256, the crop in the center.
ScaledCrop CentralScaledCrop(int height, int width, int out_height, int out_width,
                             SideRounding rounding);

// TensorFlow's sample_distorted_bounding_box with TF-Slim's numbers: a crop whose width is 3/4 to
// 1.33 times its height, with 5 % to 100 % of the image's area, which shows at least 10 % of a box;
// the whole image after 100 attempts. Without boxes the whole image is one.
Region DrawBox(int height, int width, std::span<const Box> boxes, Rng& rng);

// What Inception's color step does, and in which order.
struct ColorDistortion {
  int order = 0;         // slow mode: row of kColorOrders; fast mode: brightness, saturation
  float brightness = 0;  // U[-32/255, 32/255)
  float saturation = 1;  // U[0.5, 1.5)
  float hue = 0;         // U[-0.2, 0.2), slow mode only
  float contrast = 1;    // U[0.5, 1.5), slow mode only
};
enum class ColorStep { kBrightness, kSaturation, kHue, kContrast };
inline constexpr ColorStep kColorOrders[4][4] = {
    {ColorStep::kBrightness, ColorStep::kSaturation, ColorStep::kHue, ColorStep::kContrast},
    {ColorStep::kSaturation, ColorStep::kBrightness, ColorStep::kContrast, ColorStep::kHue},
    {ColorStep::kContrast, ColorStep::kHue, ColorStep::kBrightness, ColorStep::kSaturation},
    {ColorStep::kHue, ColorStep::kSaturation, ColorStep::kContrast, ColorStep::kBrightness}};

struct InceptionDistortion {
  Region window;
  int resize_method = 0;  // a ResizeMethod; 0 in fast mode
  bool mirrored = false;
  ColorDistortion color;
};
InceptionDistortion DrawInceptionDistortion(int height, int width, std::span<const Box> boxes,
                                            bool fast_mode, Rng& rng);

// What CIFAR-10's training does to an image that was padded with four zeros on each side.
struct CifarnetDistortion {
  int top = 0;  // of the crop in the image, -4 where it begins with padding
  int left = 0;
  bool mirrored = false;
  double brightness = 0;  // U[-63, 63)
  double contrast = 1;    // U[0.2, 1.8)
};
// Throws DataError for images that are too small.
CifarnetDistortion DrawCifarnetDistortion(int height, int width, int out_height, int out_width,
                                          Rng& rng);

}  // namespace carole::io
