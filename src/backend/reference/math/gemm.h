// Matrix products C = A B for convolutions and fully connected layers.
//
// B is packed into panels that are as wide as a register tile, A into strips that are as high as a
// tile. Each element of C is a sum over the depth (the columns of A): in ascending order within
// blocks of kDepthBlock. So the result does not depend on vector width or number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

namespace carole::reference {

// A view of a matrix; element (i, j) is data[i * row_stride + j * column_stride].
template <typename T>
struct MatrixView {
  const T* data = nullptr;
  int64_t rows = 0, columns = 0;
  int64_t row_stride = 0, column_stride = 1;

  MatrixView Transposed() const { return {data, columns, rows, column_stride, row_stride}; }
};

// Bytes of workspace that Multiply() needs for a matrix B (depth x columns).
template <typename T>
size_t MultiplyWorkspace(int64_t depth, int64_t columns);

// C (rows of A x columns of B) = A B, or += A B if `accumulate` is set. Rows of C begin c_stride
// elements apart. Throws InternalError if the sizes of A and B do not fit.
template <typename T>
void Multiply(int threads, const MatrixView<T>& a, const MatrixView<T>& b, T* c, int64_t c_stride,
              bool accumulate, std::byte* workspace);

// Arguments for one register tile: `rows` x `columns` elements of C, computed from a strip
// a[depth][kTileRows] and a panel b[depth][width].
inline constexpr int kTileRows = 4;
template <typename T>
struct TileArguments {
  const T* a;
  const T* b;
  int64_t depth;
  T* c;
  int64_t c_stride;
  int rows, columns;  // the part of the tile that is inside C
  bool accumulate;
};

// The functions of gemm_simd.cpp, which is compiled once for each x86-64 level.
#define CAROLE_GEMM_TILES(level)                        \
  namespace level {                                     \
  int PanelWidth(const float*);                         \
  int PanelWidth(const double*);                        \
  void MultiplyTile(const TileArguments<float>& tile);  \
  void MultiplyTile(const TileArguments<double>& tile); \
  }
CAROLE_GEMM_TILES(simd_v2)
CAROLE_GEMM_TILES(simd_v3)
CAROLE_GEMM_TILES(simd_v4)
#undef CAROLE_GEMM_TILES

}  // namespace carole::reference
