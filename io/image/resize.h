// Resizing as TensorFlow 1 does it: align_corners=False and no half-pixel centers, so that output
// place i reads the source at i * (in / out).
//
// Most images take one pass: bytes are decoded only where the output needs them, resized
// bilinearly, mirrored, distorted in color, normalized and written, row by row.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "io/image/lazy_image.h"

namespace carole::io {

// One direction of a resize: what places [first, first + count) of `out` places read of `in`.
struct ResizeAxis {
  int in = 0;
  int out = 0;
  int first = 0;
  int count = 0;
  bool mirrored = false;  // the last place comes first
};

// What is done to the values of a resized image.
struct PixelMap {
  float unit = 1;                   // bytes are multiplied by this before all else
  bool distort = false;             // three channels only:
  float brightness = 0;             //   added,
  float saturation = 1;             //   TensorFlow's adjust_saturation, then clipped to [0, 1]
  std::array<float, 3> subtract{};  // of each channel, at last (with `distort`: all the same)
  float multiply = 1;               // then
};

struct ResizeTask {
  Region source;  // of the picture: what is resized; axes are within it
  ResizeAxis rows;
  ResizeAxis columns;
  PixelMap map;
};

// Bilinear, fused as above. Decodes `picture`, at the least size that is not below the output's
// where it was opened for scaling. out is (rows.count, columns.count, channels).
void ResizeBilinear(const ResizeTask& task, LazyImage& picture, std::span<float> out);

// The other methods of Inception's slow mode, on floats: in (height, width, channels) to out
// (out_height, out_width, channels).
struct FloatImage {
  int height = 0;
  int width = 0;
  int channels = 3;
  std::vector<float> values;
};
enum class ResizeMethod { kBilinear, kNearest, kBicubic, kArea };  // numbered as tf.image has them
FloatImage Resize(const FloatImage& in, int out_height, int out_width, ResizeMethod method);

// bytes * unit.
FloatImage ToFloats(const ImageView& image, float unit);

// bytes = values * scale + offset[channel], rounded, and cut to 0..255.
void ToBytes(std::span<const float> values, int channels, float scale,
             const std::array<float, 3>& offset, std::span<uint8_t> bytes);

}  // namespace carole::io
