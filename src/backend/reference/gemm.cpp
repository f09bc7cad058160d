#include "src/backend/reference/gemm.h"

#include <algorithm>

#include "src/backend/reference/reference.h"
#include "src/core/simd.h"

namespace carole::reference {
namespace {

constexpr int64_t kDepthBlock = 256;  // a panel of this depth stays in the L2 cache, a strip in L1
constexpr int64_t kRowBlock = 16;     // rows of C in a task
constexpr int64_t kPanelBlock = 8;    // panels in a task
static_assert(kRowBlock % kTileRows == 0);

template <typename T>
int PanelColumns() {
  using Width = int (*)(const T*);
  static const int width =
      PickSimd<Width>(simd_v2::PanelWidth, simd_v3::PanelWidth, simd_v4::PanelWidth)(nullptr);
  return width;
}

template <typename T>
void RunTile(const TileArguments<T>& tile) {
  using Run = void (*)(const TileArguments<T>&);
  static const Run run =
      PickSimd<Run>(simd_v2::MultiplyTile, simd_v3::MultiplyTile, simd_v4::MultiplyTile);
  run(tile);
}

// packed[k][j] = b(k, first + j) for j < width, 0 beyond the matrix.
template <typename T>
void PackPanel(const MatrixView<T>& b, int64_t first, int64_t width, T* packed) {
  const int64_t columns = std::min(width, b.columns - first);
  const T* from = b.data + first * b.column_stride;
  if (columns < width) std::fill_n(packed, b.rows * width, T{0});
  if (b.column_stride == 1) {
    for (int64_t k = 0; k < b.rows; ++k) {
      std::copy_n(from + k * b.row_stride, columns, packed + k * width);
    }
    return;
  }
  for (int64_t j = 0; j < columns; ++j) {
    for (int64_t k = 0; k < b.rows; ++k) {
      packed[k * width + j] = from[k * b.row_stride + j * b.column_stride];
    }
  }
}

// packed[i / kTileRows][k][i % kTileRows] = a(first + i, k) for the rows of a block, 0 beyond the
// matrix.
template <typename T>
void PackStrips(const MatrixView<T>& a, int64_t first, T* packed) {
  const int64_t rows = std::min(kRowBlock, a.rows - first);
  for (int64_t i = 0; i < kRowBlock; ++i) {
    T* to = packed + i / kTileRows * kTileRows * a.columns + i % kTileRows;
    const T* from = a.data + (first + i) * a.row_stride;
    for (int64_t k = 0; k < a.columns; ++k) {
      to[k * kTileRows] = i < rows ? from[k * a.column_stride] : T{0};
    }
  }
}

// C += or = A B for one block of the depth, with B packed.
template <typename T>
void MultiplyBlock(int threads, const MatrixView<T>& a, const T* panels, int64_t columns, T* c,
                   int64_t c_stride, bool accumulate) {
  const int64_t width = PanelColumns<T>();
  const int64_t all_panels = (columns + width - 1) / width;
  const int64_t groups = (all_panels + kPanelBlock - 1) / kPanelBlock;
  const int64_t row_blocks = (a.rows + kRowBlock - 1) / kRowBlock;
  ParallelFor(threads, row_blocks * groups, [&](int64_t task) {
    alignas(64) T strips[kRowBlock * kDepthBlock];
    const int64_t row = task / groups * kRowBlock;
    const int64_t panel = task % groups * kPanelBlock;
    PackStrips(a, row, strips);
    for (int64_t j = panel; j < std::min(panel + kPanelBlock, all_panels); ++j) {
      for (int64_t i = row; i < std::min(row + kRowBlock, a.rows); i += kTileRows) {
        RunTile<T>({.a = strips + (i - row) * a.columns,
                    .b = panels + j * width * a.columns,
                    .depth = a.columns,
                    .c = c + i * c_stride + j * width,
                    .c_stride = c_stride,
                    .rows = static_cast<int>(std::min<int64_t>(kTileRows, a.rows - i)),
                    .columns = static_cast<int>(std::min(width, columns - j * width)),
                    .accumulate = accumulate});
      }
    }
  });
}

}  // namespace

template <typename T>
size_t MultiplyWorkspace(int64_t columns) {
  const int64_t width = PanelColumns<T>();
  return static_cast<size_t>((columns + width - 1) / width * width * kDepthBlock) * sizeof(T);
}

template <typename T>
void Multiply(int threads, const MatrixView<T>& a, const MatrixView<T>& b, T* c, int64_t c_stride,
              bool accumulate, std::byte* workspace) {
  CAROLE_CHECK_EQ(a.columns, b.rows, "matrix product");
  T* panels = reinterpret_cast<T*>(workspace);
  const int64_t width = PanelColumns<T>();
  for (int64_t k = 0; k < a.columns; k += kDepthBlock) {
    MatrixView<T> a_block = a, b_block = b;
    a_block.columns = b_block.rows = std::min(kDepthBlock, a.columns - k);
    a_block.data += k * a.column_stride;
    b_block.data += k * b.row_stride;
    ParallelFor(threads, (b.columns + width - 1) / width, [&](int64_t j) {
      PackPanel(b_block, j * width, width, panels + j * width * b_block.rows);
    });
    MultiplyBlock(threads, a_block, panels, b.columns, c, c_stride, accumulate || k > 0);
  }
}

template size_t MultiplyWorkspace<float>(int64_t);
template size_t MultiplyWorkspace<double>(int64_t);
template void Multiply(int, const MatrixView<float>&, const MatrixView<float>&, float*, int64_t,
                       bool, std::byte*);
template void Multiply(int, const MatrixView<double>&, const MatrixView<double>&, double*, int64_t,
                       bool, std::byte*);

}  // namespace carole::reference
