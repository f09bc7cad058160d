// Matrix products for convolutions and fully connected layers.
//
// B is packed into panels as wide as the register tile, A into strips as high as it; each element
// of C is then one sum over `depth`, in ascending order within blocks of kDepthBlock, whatever the
// vector width or the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

namespace carole::reference {

// Element (i, j) is data[i * row_stride + j * column_stride].
template <typename T>
struct MatrixView {
  const T* data = nullptr;
  int64_t rows = 0, columns = 0;
  int64_t row_stride = 0, column_stride = 1;

  MatrixView Transposed() const { return {data, columns, rows, column_stride, row_stride}; }
};

// Bytes of workspace that Multiply needs for a matrix B (depth x columns).
template <typename T>
size_t MultiplyWorkspace(int64_t depth, int64_t columns);

// C (rows of A x columns of B) = A B, or += A B; c_stride elements lie between rows of C.
template <typename T>
void Multiply(int threads, const MatrixView<T>& a, const MatrixView<T>& b, T* c, int64_t c_stride,
              bool accumulate, std::byte* workspace);

// One register tile: `rows` x `columns` of C from a strip a[depth][kTileRows] and a panel
// b[depth][width].
inline constexpr int kTileRows = 4;
template <typename T>
struct TileArguments {
  const T* a;
  const T* b;
  int64_t depth;
  T* c;
  int64_t c_stride;
  int rows, columns;  // of the tile that lie in C
  bool accumulate;
};

// The variants of gemm_simd.cpp for one CPU level.
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
