// The random decisions of training preprocessing, separate from the pixel work that follows.
//
// The distributions are those of TF-Slim's preprocessing. Each function is pure: its result depends
// only on its arguments and on the stream `rng`. Sizes and positions are in pixels.
#pragma once

#include <span>

#include "io/image/image.h"
#include "io/preprocessing/preprocessing.h"
#include "src/core/rng.h"

namespace carole::io {

// A crop of a resized image, as the preprocessing of ResNet and VGG takes it.
struct ScaledCrop {
  int height = 0;  // of the whole image after resizing
  int width = 0;
  int top = 0;  // position of the crop in the resized image
  int left = 0;
  bool mirrored = false;
};

// How the scaled sides become integers: TF-Slim rounds half to even, the official ImageNet ResNet
// truncates.
enum class SideRounding { kHalfEven, kTruncate };

// Computes the size of the image after resizing it so that its shorter side is `shorter`. Only
// height and width of the result are set. Throws DataError if the longer side would exceed 2^30.
ScaledCrop ScaleShorterSide(int height, int width, int shorter, SideRounding rounding);

// Training: the shorter side is uniform in 256..512 (both included). The crop of size (out_height,
// out_width) is uniform over all positions. It is mirrored with probability 1/2. With `min_area`
// above 0, the shorter side is bounded so that the crop takes this share of a square image, but not
// below 256. Throws as ScaleShorterSide().
ScaledCrop DrawScaledCrop(int height, int width, int out_height, int out_width,
                          SideRounding rounding, Rng& rng, double min_area = 0);
// Evaluation: the shorter side is 256, and the crop is in the center. Throws as ScaleShorterSide().
ScaledCrop CentralScaledCrop(int height, int width, int out_height, int out_width,
                             SideRounding rounding);

// TensorFlow's sample_distorted_bounding_box with TF-Slim's parameters. Returns a crop whose width
// is 0.75 to 1.33 times its height. It has 5 % to 100 % of the image's area and shows at least 10 %
// of one of the boxes. Without boxes, the whole image counts as one. Returns the whole image if 100
// attempts fail. `min_area` above 0 replaces the 5 %.
Region DrawCropRegion(int height, int width, std::span<const Box> boxes, Rng& rng,
                      double min_area = 0);

// The parameters of Inception's color distortion.
struct ColorDistortion {
  int order = 0;         // slow mode: row of kColorOrders; fast mode: 0 (brightness, saturation)
  float brightness = 0;  // U[-32/255, 32/255)
  float saturation = 1;  // U[0.5, 1.5)
  float hue = 0;         // U[-0.2, 0.2), slow mode only
  float contrast = 1;    // U[0.5, 1.5), slow mode only
};
enum class ColorStep { kBrightness, kSaturation, kHue, kContrast };
// The orders of steps among which slow mode chooses.
inline constexpr ColorStep kColorOrders[4][4] = {
    {ColorStep::kBrightness, ColorStep::kSaturation, ColorStep::kHue, ColorStep::kContrast},
    {ColorStep::kSaturation, ColorStep::kBrightness, ColorStep::kContrast, ColorStep::kHue},
    {ColorStep::kContrast, ColorStep::kHue, ColorStep::kBrightness, ColorStep::kSaturation},
    {ColorStep::kHue, ColorStep::kSaturation, ColorStep::kContrast, ColorStep::kBrightness}};

// The random decisions of Inception's training preprocessing.
struct InceptionDistortion {
  Region crop;
  int resize_method = 0;  // a ResizeMethod (resize.h); 0 in fast mode
  bool mirrored = false;
  ColorDistortion color;
};
InceptionDistortion DrawInceptionDistortion(int height, int width, std::span<const Box> boxes,
                                            bool fast_mode, Rng& rng, double min_area = 0);

// The random decisions of CIFAR-10's training preprocessing. The image is padded with four zeros on
// each side.
struct CifarnetDistortion {
  int top = 0;  // position of the crop in the unpadded image; -4: it begins with all of the padding
  int left = 0;
  bool mirrored = false;
  double brightness = 0;  // U[-63, 63)
  double contrast = 1;    // U[0.2, 1.8)
};
// The crop of size (out_height, out_width) is uniform over all positions in the padded image.
// Throws DataError if the padded image is smaller than the crop.
CifarnetDistortion DrawCifarnetDistortion(int height, int width, int out_height, int out_width,
                                          Rng& rng);

}  // namespace carole::io
