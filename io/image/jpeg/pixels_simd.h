// The loops from coefficients to pixels, compiled once for each x86-64 level. All results equal
// those of libjpeg-turbo's vector code to the bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "io/image/jpeg/entropy_simd.h"

namespace carole::io::jpeg {

// Rows of samples are read and written in whole vectors, which may reach this many bytes beyond
// both ends of a row.
inline constexpr int kRowMargin = 64;

// A row of coefficient blocks, kBlockStride apart in memory.
struct BlockRow {
  const int16_t* coefficients;
  const uint8_t* last_nonzero;  // for each block, as McuBlock::last_nonzero
  int count;
};

// A row of adjacent boxes of (height, width) samples. Both sides are 1, 2, 4 or 8.
struct BoxRow {
  const uint8_t* samples;
  ptrdiff_t stride;  // from row to row of samples
  int width;
  int height;
  int count;
};

struct PixelKernels {
  // The fast integer inverse DCT (Arai, Agui, Nakajima 1988) with 16-bit integers. `multipliers`
  // are kBlockCoefficients scaled quantizers (plane.cpp). Writes 8 rows of 8 samples for each
  // block. The rows are `stride` bytes apart, and adjacent blocks are 8 bytes apart.
  void (*inverse_dct)(const BlockRow& blocks, const int16_t* multipliers, uint8_t* samples,
                      ptrdiff_t stride);
  // Writes the rounded mean of each box.
  void (*box_means)(const BoxRow& boxes, uint8_t* out);
  // Doubles the number of columns: writes 2 * count samples. Each is the weighted mean of a sample
  // and its left or right neighbor in the ratio 3 : 1. Reads in[-1] and in[count], which must
  // repeat the outermost samples at the edges of the image.
  void (*upsample_columns)(const uint8_t* in, int count, uint8_t* out);
  // Like upsample_columns, but first mixes two rows: `near` and `far` in the ratio 3 : 1.
  void (*upsample_both)(const uint8_t* near, const uint8_t* far, int count, uint8_t* out);
  // Convert `count` pixels to RGB. They write exactly count * 3 bytes but read whole vectors of
  // samples.
  void (*to_rgb)(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, int count, uint8_t* rgb);
  void (*gray_to_rgb)(const uint8_t* y, int count, uint8_t* rgb);
};

namespace simd_v2 {
PixelKernels MakePixelKernels();
}
namespace simd_v3 {
PixelKernels MakePixelKernels();
}
namespace simd_v4 {
PixelKernels MakePixelKernels();
}

}  // namespace carole::io::jpeg
