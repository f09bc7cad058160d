#include "io/preprocessing/distortion.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/core/error.h"

namespace carole::io {
namespace {

constexpr int kShortestSide = 256;
constexpr int kLongestSide = 512;

float Uniform(Rng& rng, float low, float high) { return low + (high - low) * rng.NextFloat(); }
bool Coin(Rng& rng) { return rng.NextFloat() < 0.5f; }
int Below(Rng& rng, int bound) { return static_cast<int>(rng.NextBelow(bound)); }

// Pixels, as corners.
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

bool ShowsEnoughOf(const Corners& box, const Region& window) {
  constexpr float kMinCovered = 0.1f;
  if (box.area() < 1) return false;
  const Corners common{.top = std::max(box.top, window.top),
                       .left = std::max(box.left, window.left),
                       .bottom = std::min(box.bottom, window.top + window.height),
                       .right = std::min(box.right, window.left + window.width)};
  return common.area() / box.area() >= kMinCovered;
}

// One attempt at height and width of a crop; false when it does not fit. Float32 and rounding are
// TensorFlow's.
bool DrawBoxSize(int height, int width, Rng& rng, Region& window) {
  const float aspect = Uniform(rng, 0.75f, 1.33f);  // width over height
  const float pixels = static_cast<float>(height) * static_cast<float>(width);
  const float min_area = 0.05f * pixels;
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
  window.height = h;
  window.width = width_of(h);
  return area() >= min_area && area() <= max_area && window.width <= width && h <= height &&
         window.width > 0 && h > 0;
}

}  // namespace

ScaledCrop ScaleShorterSide(int height, int width, int shorter, SideRounding rounding) {
  const float factor = static_cast<float>(shorter) / static_cast<float>(std::min(height, width));
  // What is left of an int is for sums of places.
  constexpr int kMaxSide = 1 << 30;
  const auto scale = [&](int side) {
    const float scaled = static_cast<float>(side) * factor;
    if (scaled > static_cast<float>(kMaxSide)) {
      throw DataError(
          fmt::format("[io.preprocessing] image too narrow: got {}x{}, want the longer side to be "
                      "at most {} times the shorter",
                      height, width, kMaxSide / shorter));
    }
    return static_cast<int>(rounding == SideRounding::kHalfEven ? std::rint(scaled) : scaled);
  };
  return {.height = scale(height), .width = scale(width)};
}

ScaledCrop DrawScaledCrop(int height, int width, int out_height, int out_width,
                          SideRounding rounding, Rng& rng) {
  const int shorter = kShortestSide + Below(rng, kLongestSide - kShortestSide + 1);
  ScaledCrop crop = ScaleShorterSide(height, width, shorter, rounding);
  crop.top = Below(rng, crop.height - out_height + 1);
  crop.left = Below(rng, crop.width - out_width + 1);
  crop.mirrored = Coin(rng);
  return crop;
}

ScaledCrop CentralScaledCrop(int height, int width, int out_height, int out_width,
                             SideRounding rounding) {
  ScaledCrop crop = ScaleShorterSide(height, width, kShortestSide, rounding);
  crop.top = (crop.height - out_height) / 2;
  crop.left = (crop.width - out_width) / 2;
  return crop;
}

Region DrawBox(int height, int width, std::span<const Box> boxes, Rng& rng) {
  constexpr int kAttempts = 100;
  constexpr Box kWhole{};
  if (boxes.empty()) boxes = std::span(&kWhole, 1);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Region window;
    if (!DrawBoxSize(height, width, rng, window)) continue;
    // The last place is never drawn, as in TensorFlow.
    if (window.height < height) window.top = Below(rng, height - window.height);
    if (window.width < width) window.left = Below(rng, width - window.width);
    for (const Box& box : boxes) {
      if (ShowsEnoughOf(ToPixels(box, height, width), window)) return window;
    }
  }
  return {.height = height, .width = width};
}

InceptionDistortion DrawInceptionDistortion(int height, int width, std::span<const Box> boxes,
                                            bool fast_mode, Rng& rng) {
  InceptionDistortion d{.window = DrawBox(height, width, boxes, rng)};
  if (!fast_mode) d.resize_method = Below(rng, 4);
  d.mirrored = Coin(rng);
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
  const int rows = height + 2 * kPadding - out_height;  // places beyond the first
  const int columns = width + 2 * kPadding - out_width;
  if (rows < 0 || columns < 0) {
    throw DataError(
        fmt::format("[io.preprocessing] cifarnet: image too small: got {}x{}, want at least {}x{}",
                    height, width, out_height - 2 * kPadding, out_width - 2 * kPadding));
  }
  CifarnetDistortion d;
  d.top = Below(rng, rows + 1) - kPadding;
  d.left = Below(rng, columns + 1) - kPadding;
  d.mirrored = Coin(rng);
  d.brightness = -63.0 + 126.0 * rng.NextFloat();
  d.contrast = 0.2 + 1.6 * rng.NextFloat();
  return d;
}

}  // namespace carole::io
