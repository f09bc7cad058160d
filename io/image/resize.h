// Image resizing as in TensorFlow 1: align_corners=False and no half-pixel centers, so output pixel
// i reads the source at coordinate i * (in / out).
//
// ResizeBilinear() does nearly everything that training needs in one pass over the image. It
// decodes only the needed part, resizes, flips, distorts colors and normalizes, row by row.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "io/image/lazy_image.h"

namespace carole::io {

// One direction of a resize: `in` pixels are resized to `out` pixels, of which the pixels
// [first, first + count) are computed.
struct ResizeAxis {
  int in = 0;
  int out = 0;
  int first = 0;
  int count = 0;
  bool mirrored = false;  // whether the computed pixels are written in reverse order
};

// The operations on the values of a resized image, in this order.
struct PixelMap {
  float unit = 1;                   // before resizing, bytes are multiplied by this
  bool distort = false;             // whether the next two apply; needs three channels
  float brightness = 0;             //   is added
  float saturation = 1;             //   as tf.image.adjust_saturation, then clamped to [0, 1]
  std::array<float, 3> subtract{};  // per channel; with `distort` all three must be equal
  float multiply = 1;               // at the end
};

struct ResizeTask {
  Region source;  // the part of the image that is resized; rows.in and columns.in are its size
  ResizeAxis rows;
  ResizeAxis columns;
  PixelMap map;
};

// Resizes bilinearly, fused with all operations of `task`. Decodes `image`; if it was opened for
// scaling, at the smallest size that is not below the output's. Writes `out`, which has the shape
// (rows.count, columns.count, channels). Throws DataError if the image cannot be decoded.
void ResizeBilinear(const ResizeTask& task, LazyImage& image, std::span<float> out);

// An image of floats: (height, width, channels), row-major.
struct FloatImage {
  int height = 0;
  int width = 0;
  int channels = 3;
  std::vector<float> values;
};

// The numbers equal those of tf.image.ResizeMethod.
enum class ResizeMethod { kBilinear, kNearest, kBicubic, kArea };

// Resizes to (out_height, out_width, channels) with any of TensorFlow's methods, which Inception's
// preprocessing needs when it is not in fast mode. Slower than ResizeBilinear().
FloatImage Resize(const FloatImage& in, int out_height, int out_width, ResizeMethod method);

// Returns the image's bytes multiplied by `unit`.
FloatImage ToFloats(const ImageView& image, float unit);

// Computes bytes = values * scale + offset[channel], rounded and clamped to 0..255. `values` and
// `bytes` have the same size; channels alternate.
void ToBytes(std::span<const float> values, int channels, float scale,
             const std::array<float, 3>& offset, std::span<uint8_t> bytes);

}  // namespace carole::io
