// The row loops of resize.cpp, once for each x86-64 level.
#pragma once

#include <cstddef>
#include <cstdint>

namespace carole::io {

// Behind each row of floats that is read or written by pixels of three values.
inline constexpr size_t kRowSlack = 1;

// Sources of the pixels of an output row: value = row[lower] + (row[upper] - row[lower]) *
// fraction, for each channel. Indices count values, not pixels.
struct ColumnLerp {
  const int32_t* lower;
  const int32_t* upper;
  const float* fraction;
  size_t pixels;
};

// What happens to the values of a row at last: out = (value - subtract[i]) * multiply.
struct RowFinish {
  const float* subtract;  // for each value of a row
  float multiply;
  // Color, for three channels: value + brightness, then saturation about the largest channel, then
  // clipped to [0, 1].
  bool distort = false;
  float brightness = 0;
  float saturation = 1;
};

struct ResizeKernels {
  // out[i] = in[i] * unit
  void (*bytes_to_floats)(const uint8_t* in, size_t count, float unit, float* out);
  // out[i] = in[i] * scale + offset[i], rounded, and cut to 0..255
  void (*floats_to_bytes)(const float* in, size_t count, float scale, const float* offset,
                          uint8_t* out);
  void (*lerp_columns_1)(const float* row, const ColumnLerp& columns, float* out);
  void (*lerp_columns_3)(const float* row, const ColumnLerp& columns, float* out);
  // out = finish(above + (below - above) * fraction), `pixels` of `channels` values.
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
