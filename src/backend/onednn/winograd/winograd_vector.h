// The transforms of Winograd's F(4x4, 3x3) as vector code, for AVX2 and AVX-512
// (winograd_vector_simd.cpp). They start no threads. winograd.cpp explains the algorithm.
//
// A map is one activation or gradient of one image. Maps are stored in blocks of channels (nChw8c
// or nChw16c): a block has as many channels as a vector has lanes. A tile is 4x4 pixels of the
// result's map together with the 6x6 pixels of the other map that its 3x3 windows read.
//
// A transformed tile is 36 vectors ("points") for each block of channels. They are `point_stride`
// floats apart. The points of the next tile to the right begin `tile_stride` floats later.
#pragma once

#include <cstdint>

namespace carole::onednn {

inline constexpr int64_t kWinogradTile = 4, kWinogradPoints = 36;

// One row of tiles. Pixels outside the map are read as 0 and are not written.
struct TileRow {
  int64_t height, width;  // of the map
  int64_t y, x;           // the first tile's first pixel
  int64_t tiles;          // number of tiles
};

// T is the type in which maps and filters are stored, float or Bf16. Everything else is float, and
// so is all arithmetic. The matrices A, B and G are in winograd_vector_simd.cpp.
template <typename T>
struct WinogradTransforms {
  // v = B^T d B for 6x6 pixels d of each tile.
  void (*input)(const T* map, const TileRow& row, float* v, int64_t point_stride,
                int64_t tile_stride);
  // z = A d A^T for 4x4 pixels d of each tile.
  void (*gradient)(const T* map, const TileRow& row, float* z, int64_t point_stride,
                   int64_t tile_stride);
  // Writes [relu](A^T m A + bias [+ residual]) to 4x4 pixels of each tile. `bias` has one value for
  // each channel of the block, `residual` is a map. Both may be null.
  void (*output)(const float* m, int64_t point_stride, int64_t tile_stride, const TileRow& row,
                 const float* bias, const T* residual, bool relu, T* map);
  // u = G g G^T for the pairs of channels [begin, end). g is (taps, pairs) in memory, u (points,
  // pairs). `rotated` takes the taps in reverse order.
  void (*filter)(const T* g, int64_t pairs, int64_t begin, int64_t end, bool rotated, float* u);
  // dg = G^T du G for the pairs of channels [begin, end), with dg (taps, pairs). du is the sum of
  // `parts` arrays (points, pairs), which are part_stride floats apart.
  void (*filter_gradient)(const float* du, int64_t parts, int64_t part_stride, int64_t pairs,
                          int64_t begin, int64_t end, float* dg);
  // Adds the sums of a block's channels over `pixels` adjacent pixels to `sums`.
  void (*add_pixels)(const T* map, int64_t pixels, double* sums);
};

}  // namespace carole::onednn
