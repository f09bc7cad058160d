// The transforms of Winograd's minimal filtering F(4x4, 3x3) in vector code, for AVX2 and for
// AVX-512 (winograd_vector.cpp). None of them starts threads.
//
// Maps lie in blocks of as many channels as a vector has lanes, pixel by pixel (nChw8c, nChw16c); a
// tile is 4x4 pixels of one map and the 6x6 of the other that its taps reach. What a tile becomes
// are 36 vectors of a block's channels, `apart` floats from one to the next; those of the tile to
// its right begin `pitch` floats later.
#pragma once

#include <cstdint>

namespace carole::onednn {

inline constexpr int64_t kWinogradTile = 4, kWinogradPoints = 36;

// Tiles of one row, from pixel (y, x) of a map of height x width on; pixels outside are zero where
// they are read, and left out where they are written.
struct TileRow {
  int64_t height, width;
  int64_t y, x;
  int64_t tiles;
};

// T is how maps and filters are stored, float or Bf16; all else, and all arithmetic, is float.
template <typename T>
struct WinogradTransforms {
  // v = B^T d B of 6x6 pixels each
  void (*input)(const T* map, const TileRow& row, float* v, int64_t apart, int64_t pitch);
  // z = A d A^T of 4x4 pixels each
  void (*gradient)(const T* map, const TileRow& row, float* z, int64_t apart, int64_t pitch);
  // 4x4 pixels each: [relu](A^T m A + bias [+ residual]); bias of a block's channels, residual a
  // map, both may be null
  void (*output)(const float* m, int64_t apart, int64_t pitch, const TileRow& row,
                 const float* bias, const T* residual, bool relu, T* map);
  // u = G g G^T for pairs of channels [begin, end) of `pairs`, which g has side by side, tap by
  // tap, and u point by point; rotated: with the taps in reverse order.
  void (*filter)(const T* g, int64_t pairs, int64_t begin, int64_t end, bool rotated, float* u);
  // dg = G^T du G, likewise; du is the sum of `parts`, part_pitch floats apart.
  void (*filter_gradient)(const float* du, int64_t parts, int64_t part_pitch, int64_t pairs,
                          int64_t begin, int64_t end, float* dg);
  // sums of a block's channels over pixels that lie together, added to what is there
  void (*add_pixels)(const T* map, int64_t pixels, double* sums);
};

}  // namespace carole::onednn
