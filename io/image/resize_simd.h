// The row loops of resize.cpp, compiled once for each x86-64 level.
#pragma once

#include <cstddef>
#include <cstdint>

namespace carole::io {

// Number of additional floats after each row whose pixels of three values are read or written as
// vectors of four.
inline constexpr size_t kRowSlack = 1;

// The sources of an output row's pixels: value = row[lower] + (row[upper] - row[lower]) * fraction,
// for each channel. The indices count values, not pixels.
struct ColumnLerp {
  const int32_t* lower;
  const int32_t* upper;
  const float* fraction;
  size_t pixels;
};

// The last operations on the values of a row: out = (value - subtract[i]) * multiply.
struct RowFinish {
  const float* subtract;  // one element for each value of a row
  float multiply;
  // Color distortion before that, for three channels: adds brightness, scales the saturation
  // relative to the largest channel, then clamps to [0, 1].
  bool distort = false;
  float brightness = 0;
  float saturation = 1;
};

struct ResizeKernels {
  // out[i] = in[i] * unit
  void (*bytes_to_floats)(const uint8_t* in, size_t count, float unit, float* out);
  // out[i] = in[i] * scale + offset[i], rounded and clamped to 0..255
  void (*floats_to_bytes)(const float* in, size_t count, float scale, const float* offset,
                          uint8_t* out);
  // Resizes a row horizontally, with 1 or 3 channels. `row` and `out` need kRowSlack.
  void (*lerp_columns_1)(const float* row, const ColumnLerp& columns, float* out);
  void (*lerp_columns_3)(const float* row, const ColumnLerp& columns, float* out);
  // out[i] = finish(above[i] + (below[i] - above[i]) * fraction), for `count` values.
  void (*lerp_rows)(const float* above, const float* below, float fraction, size_t count,
                    const RowFinish& finish, float* out);
};

namespace simd_v2 {
ResizeKernels MakeResizeKernels();
}
namespace simd_v3 {
ResizeKernels MakeResizeKernels();
}
namespace simd_v4 {
ResizeKernels MakeResizeKernels();
}

}  // namespace carole::io
