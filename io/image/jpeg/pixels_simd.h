// From coefficients to pixels, once for each x86-64 level. All results are those of libjpeg-turbo's
// vector code, to the bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "io/image/jpeg/entropy_simd.h"

namespace carole::io::jpeg {

// Rows of samples and pixels are read and written by whole vectors: this far beyond their ends.
inline constexpr int kRowMargin = 64;

// Blocks of coefficients that lie side by side, kBlockStride apart.
struct BlockRow {
  const int16_t* coefficients;
  const uint8_t* last;  // of each block, as McuBlock::last
  int count;
};

// Boxes of (height, width) samples, side by side; both are 1, 2, 4 or 8.
struct BoxRow {
  const uint8_t* samples;
  ptrdiff_t stride;  // from row to row of samples
  int width;
  int height;
  int count;
};

struct PixelKernels {
  // The fast integer transform (Arai, Agui, Nakajima 1988) in 16 bits. multipliers:
  // kBlockCoefficients, a Plane's (plane.cpp). Writes 8 rows of 8 samples for each block, rows
  // `stride` apart.
  void (*inverse_dct)(const BlockRow& blocks, const int16_t* multipliers, uint8_t* samples,
                      ptrdiff_t stride);
  // Of each box, rounded.
  void (*means)(const BoxRow& boxes, uint8_t* out);
  // Twice as many columns: of each sample and its neighbors in the ratio 3 : 1. Reads in[-1] and
  // in[count], which at the edges repeat the outermost sample.
  void (*upsample_columns)(const uint8_t* in, int count, uint8_t* out);
  // The same between rows, too: `near` and `far` are in the ratio 3 : 1 before.
  void (*upsample_both)(const uint8_t* near, const uint8_t* far, int count, uint8_t* out);
  // Writes count * 3 bytes and no more; reads samples beyond.
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
