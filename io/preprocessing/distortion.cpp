// Draws the random decisions of data augmentation, before any pixel is decoded.
//
// Why two phases
//
// Augmentation must equal TF-Slim's in distribution, or trained nets reach other accuracies. It
// must also be reproducible, and cheap. So each training preprocessing has two phases:
//
//   1. This file draws all numbers: the crop, whether to mirror, the changes of color. Its input is
//      the size of the image, its bounding boxes, and a stream of random numbers.
//   2. preprocessing_*.cpp decodes only the pixels that these decisions need, and transforms them.
//      Most images take one fused pass.
//
// The stream is counter-based. Its key is (seed, purpose, epoch, record), so neither the number of
// threads nor the number of ranks changes a draw. The order of the draws within a function is part
// of the result: exchanging two calls gives other images for the same seed.
//
// VGG and ResNet: DrawScaledCrop()
//
// The shorter side becomes a uniform integer in 256..512. Then a crop of the output's size is
// placed uniformly. Example: an image of 375x500 (height x width), shorter side 300, output
// 224x224. The factor is 0.8, so the resized image has 300x400 pixels. The crop's top is uniform in
// 0..76 and its left in 0..176; both ends are included.
//
// TF-Slim and the official ImageNet ResNet round differently. For 121x121 and shorter side 256, the
// product 121 * float32(256 / 121) is slightly below 256. TF-Slim rounds it to 256; the official
// ImageNet ResNet truncates it to 255.
//
// Inception: DrawCropRegion()
//
// This is TensorFlow's sample_distorted_bounding_box. An attempt has four steps:
//
//   1. Draw the aspect ratio (width over height) uniformly in [0.75, 1.33).
//   2. Compute the lowest and the highest height for which the crop fits into the image and has 5 %
//      to 100 % of its area.
//   3. Draw the height uniformly between these. The width follows from the aspect ratio.
//   4. Draw the position uniformly. Accept the crop if it shows at least 10 % of a bounding box.
//
// Example: an image of 375x500 and aspect ratio 1. The area is 187500 pixels, so the lowest height
// is sqrt(0.05 * 187500) = 97. The highest is sqrt(187500) = 433, limited to the image's 375.
// Height 200 gives a crop of 200x200, which is 21 % of the area. Its top is uniform in 0..174.
// Position 175 would fit too, but TensorFlow never draws the last position.
//
// The height is uniform, not the area. A uniform area would have a mean of about 52 %. TensorFlow's
// crops of a 375x500 image have a mean of 38.9 %, measured over 20000 draws.
//
// Rounding matters as well: heights and widths are computed in float32 and rounded half to even, as
// in TensorFlow. After rounding, the area can be just outside its bounds. Then the height moves by
// one pixel, and an attempt that still does not fit is dropped. After 100 attempts the crop is the
// whole image.
//
// tests/io/preprocessing/distortion_test.cpp compares means, deviations and quartiles of 10000
// draws with TensorFlow's. It also tests each uniform quantity (Kolmogorov-Smirnov, chi-squared).
#include "io/preprocessing/distortion.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "io/preprocessing/preprocessing.h"
#include "src/core/error.h"

namespace carole::io {
namespace {

constexpr int kShortestSide = 256;
constexpr int kLongestSide = 512;

float Uniform(Rng& rng, float low, float high) { return low + (high - low) * rng.NextFloat(); }
bool CoinFlip(Rng& rng) { return rng.NextFloat() < 0.5f; }
// Uniform in [0, bound).
int Below(Rng& rng, int bound) { return static_cast<int>(rng.NextBelow(bound)); }

// A rectangle in pixels; bottom and right are exclusive.
struct Corners {
  int top, left, bottom, right;
  float area() const {
    return static_cast<float>(std::max(bottom - top, 0)) *
           static_cast<float>(std::max(right - left, 0));
  }
};

Corners ToPixels(const Box& box, int height, int width) {
  const auto h = static_cast<float>(height);
  const auto w = static_cast<float>(width);
  return {.top = static_cast<int>(box.ymin * h),
          .left = static_cast<int>(box.xmin * w),
          .bottom = static_cast<int>(box.ymax * h),
          .right = static_cast<int>(box.xmax * w)};
}

// True if the crop contains at least 10 % of the box.
bool IsCoveredEnough(const Corners& box, const Region& crop) {
  constexpr float kMinCovered = 0.1f;
  if (box.area() < 1) return false;
  const Corners common{.top = std::max(box.top, crop.top),
                       .left = std::max(box.left, crop.left),
                       .bottom = std::min(box.bottom, crop.top + crop.height),
                       .right = std::min(box.right, crop.left + crop.width)};
  return common.area() / box.area() >= kMinCovered;
}

// Draws height and width of a crop, once. Returns false if the result does not fit. Uses float32
// and rounds where TensorFlow does, so that the distribution is the same.
bool DrawCropSize(int height, int width, double min_share, Rng& rng, Region& crop) {
  const float aspect = Uniform(rng, 0.75f, 1.33f);  // width over height
  const float pixels = static_cast<float>(height) * static_cast<float>(width);
  const float min_area = (min_share > 0 ? static_cast<float>(min_share) : 0.05f) * pixels;
  const float max_area = 1.0f * pixels;
  const auto width_of = [&](int h) {
    return static_cast<int>(std::lrint(static_cast<float>(h) * aspect));
  };
  int low = static_cast<int>(std::lrint(std::sqrt(min_area / aspect)));
  int high = static_cast<int>(std::lrint(std::sqrt(max_area / aspect)));
  if (width_of(high) > width) {
    constexpr float kEpsilon = 1e-7f;
    high = static_cast<int>((static_cast<float>(width) + 0.5f - kEpsilon) / aspect);
    if (width_of(high) > width) --high;
  }
  high = std::min(high, height);
  low = std::min(low, high);
  int h = low + (low < high ? Below(rng, high - low + 1) : 0);
  const auto area = [&] { return static_cast<float>(h) * static_cast<float>(width_of(h)); };
  if (area() < min_area) ++h;
  if (area() > max_area) --h;
  crop.height = h;
  crop.width = width_of(h);
  return area() >= min_area && area() <= max_area && crop.width <= width && h <= height &&
         crop.width > 0 && h > 0;
}

}  // namespace

ScaledCrop ScaleShorterSide(int height, int width, int shorter, SideRounding rounding) {
  const float factor = static_cast<float>(shorter) / static_cast<float>(std::min(height, width));
  constexpr int kMaxSide = 1 << 30;  // sums of two coordinates still fit an int
  const auto scale = [&](int side) {
    const float scaled = static_cast<float>(side) * factor;
    if (scaled > static_cast<float>(kMaxSide)) {
      throw DataError(
          fmt::format("[io.preprocessing] image too narrow: got {}x{}, want a longer side of at "
                      "most {} times the shorter side",
                      height, width, kMaxSide / shorter));
    }
    return static_cast<int>(rounding == SideRounding::kHalfEven ? std::rint(scaled) : scaled);
  };
  return {.height = scale(height), .width = scale(width)};
}

ScaledCrop DrawScaledCrop(int height, int width, int out_height, int out_width,
                          SideRounding rounding, Rng& rng, double min_area) {
  int longest = kLongestSide;
  if (min_area > 0) {
    longest = static_cast<int>(std::clamp(std::min(out_height, out_width) / std::sqrt(min_area),
                                          double{kShortestSide}, double{kLongestSide}));
  }
  const int shorter = kShortestSide + Below(rng, longest - kShortestSide + 1);
  ScaledCrop crop = ScaleShorterSide(height, width, shorter, rounding);
  crop.top = Below(rng, crop.height - out_height + 1);
  crop.left = Below(rng, crop.width - out_width + 1);
  crop.mirrored = CoinFlip(rng);
  return crop;
}

ScaledCrop CentralScaledCrop(int height, int width, int out_height, int out_width,
                             SideRounding rounding) {
  ScaledCrop crop = ScaleShorterSide(height, width, kEvaluationShorterSide, rounding);
  crop.top = (crop.height - out_height) / 2;
  crop.left = (crop.width - out_width) / 2;
  return crop;
}

Region DrawCropRegion(int height, int width, std::span<const Box> boxes, Rng& rng,
                      double min_area) {
  constexpr int kAttempts = 100;
  constexpr Box kWhole{};
  if (boxes.empty()) boxes = std::span(&kWhole, 1);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Region crop;
    if (!DrawCropSize(height, width, min_area, rng, crop)) continue;
    // The last possible position is never drawn, as in TensorFlow.
    if (crop.height < height) crop.top = Below(rng, height - crop.height);
    if (crop.width < width) crop.left = Below(rng, width - crop.width);
    for (const Box& box : boxes) {
      if (IsCoveredEnough(ToPixels(box, height, width), crop)) return crop;
    }
  }
  return {.height = height, .width = width};
}

InceptionDistortion DrawInceptionDistortion(int height, int width, std::span<const Box> boxes,
                                            bool fast_mode, Rng& rng, double min_area) {
  InceptionDistortion d{.crop = DrawCropRegion(height, width, boxes, rng, min_area)};
  if (!fast_mode) d.resize_method = Below(rng, 4);
  d.mirrored = CoinFlip(rng);
  d.color.brightness = Uniform(rng, -32.0f / 255.0f, 32.0f / 255.0f);
  d.color.saturation = Uniform(rng, 0.5f, 1.5f);
  if (!fast_mode) {
    d.color.order = Below(rng, static_cast<int>(std::size(kColorOrders)));
    d.color.hue = Uniform(rng, -0.2f, 0.2f);
    d.color.contrast = Uniform(rng, 0.5f, 1.5f);
  }
  return d;
}

CifarnetDistortion DrawCifarnetDistortion(int height, int width, int out_height, int out_width,
                                          Rng& rng) {
  constexpr int kPadding = 4;
  const int last_row = height + 2 * kPadding - out_height;  // last position in the padded image
  const int last_column = width + 2 * kPadding - out_width;
  if (last_row < 0 || last_column < 0) {
    throw DataError(
        fmt::format("[io.preprocessing] cifarnet: image too small: got {}x{}, want at least {}x{}",
                    height, width, out_height - 2 * kPadding, out_width - 2 * kPadding));
  }
  CifarnetDistortion d;
  d.top = Below(rng, last_row + 1) - kPadding;
  d.left = Below(rng, last_column + 1) - kPadding;
  d.mirrored = CoinFlip(rng);
  d.brightness = -63.0 + 126.0 * rng.NextFloat();
  d.contrast = 0.2 + 1.6 * rng.NextFloat();
  return d;
}

}  // namespace carole::io
