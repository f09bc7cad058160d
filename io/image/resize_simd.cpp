// Compiled once for each x86-64 level (carole_simd_source). Products and sums are not fused
// (-ffp-contract=off), so all levels give the same bits, which are TensorFlow's.
#include "io/image/resize_simd.h"

#include <algorithm>
#include <cstring>

namespace carole::io::CAROLE_SIMD_NAMESPACE {
namespace {

// A pixel of three values is read and written as a vector of four. The fourth value is the first
// one of the next pixel, or the slack after the row (kRowSlack).
using Pixel = float __attribute__((vector_size(16)));

Pixel LoadPixel(const float* from) {
  Pixel pixel;
  std::memcpy(&pixel, from, sizeof pixel);
  return pixel;
}

void BytesToFloats(const uint8_t* in, size_t count, float unit, float* out) {
  for (size_t i = 0; i < count; ++i) out[i] = static_cast<float>(in[i]) * unit;
}

void FloatsToBytes(const float* __restrict in, size_t count, float scale,
                   const float* __restrict offset, uint8_t* __restrict out) {
  for (size_t i = 0; i < count; ++i) {
    const float half_above = std::min(std::max(0.0f, in[i] * scale + offset[i]), 255.0f) + 0.5f;
    out[i] = static_cast<uint8_t>(static_cast<int>(half_above));
  }
}

void LerpColumns1(const float* row, const ColumnLerp& columns, float* out) {
  for (size_t x = 0; x < columns.pixels; ++x) {
    const float left = row[columns.lower[x]];
    out[x] = left + (row[columns.upper[x]] - left) * columns.fraction[x];
  }
}

void LerpColumns3(const float* row, const ColumnLerp& columns, float* out) {
  for (size_t x = 0; x < columns.pixels; ++x, out += 3) {
    const Pixel left = LoadPixel(row + columns.lower[x]);
    const Pixel right = LoadPixel(row + columns.upper[x]);
    const Pixel pixel = left + (right - left) * columns.fraction[x];
    std::memcpy(out, &pixel, sizeof pixel);
  }
}

// Saturation scales the distance of each channel from the largest channel, v. TensorFlow does the
// same through HSV: S = (v - smallest) / v is clamped to at most 1, and is 0 if v is not positive.
void DistortAndFinish(const float* __restrict in, size_t count, const RowFinish& finish,
                      float* __restrict out) {
  const float brightness = finish.brightness;
  const float saturation = finish.saturation;
  const float subtract = finish.subtract[0];
  const float multiply = finish.multiply;
  const auto clip = [&](float value) {
    return (std::min(std::max(value, 0.0f), 1.0f) - subtract) * multiply;
  };
  for (size_t i = 0; i < count; i += 3) {
    const float r = in[i] + brightness;
    const float g = in[i + 1] + brightness;
    const float b = in[i + 2] + brightness;
    const float v = std::max(std::max(r, g), b);
    const float range = std::max(v - std::min(std::min(r, g), b), 1e-30f);
    const float k = std::min(saturation, std::max(v, 0.0f) / range);
    out[i] = clip(v + (r - v) * k);
    out[i + 1] = clip(v + (g - v) * k);
    out[i + 2] = clip(v + (b - v) * k);
  }
}

void LerpRows(const float* above, const float* below, float fraction, size_t count,
              const RowFinish& finish, float* __restrict out) {
  if (!finish.distort) {
    const float* subtract = finish.subtract;
    const float multiply = finish.multiply;
    for (size_t i = 0; i < count; ++i) {
      const float value = above[i] + (below[i] - above[i]) * fraction;
      out[i] = (value - subtract[i]) * multiply;
    }
    return;
  }
  constexpr size_t kBlock = 192;  // a multiple of three; fits into the first-level cache
  float values[kBlock];
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t length = std::min(kBlock, count - begin);
    const float* a = above + begin;
    const float* b = below + begin;
    for (size_t i = 0; i < length; ++i) values[i] = a[i] + (b[i] - a[i]) * fraction;
    DistortAndFinish(values, length, finish, out + begin);
  }
}

}  // namespace

ResizeKernels MakeResizeKernels() {
  return {.bytes_to_floats = BytesToFloats,
          .floats_to_bytes = FloatsToBytes,
          .lerp_columns_1 = LerpColumns1,
          .lerp_columns_3 = LerpColumns3,
          .lerp_rows = LerpRows};
}

}  // namespace carole::io::CAROLE_SIMD_NAMESPACE
