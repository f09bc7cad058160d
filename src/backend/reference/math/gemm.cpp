#include "src/backend/reference/math/gemm.h"

#include <algorithm>

#include "src/backend/reference/math/loops.h"
#include "src/core/check.h"
#include "src/core/divide_up.h"
#include "src/core/simd.h"

namespace carole::reference {
namespace {

constexpr int64_t kDepthBlock =
    256;                            // a panel of this depth fits into the L2 cache, a strip into L1
constexpr int64_t kRowBlock = 16;   // rows of C in a task
constexpr int64_t kPanelBlock = 8;  // panels in a task
constexpr int64_t kPackedBytes = 8
                                 << 20;  // for packed B; more if one block of the depth needs more
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

// Packs a panel: packed[k][j] = b(k, first + j) for j < width, and 0 outside the matrix.
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

// Packs the strips of kRowBlock rows: packed[i / kTileRows][k][i % kTileRows] = a(first + i, k),
// and 0 outside the matrix.
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

template <typename T>
int64_t PanelCount(int64_t columns) {
  return DivideUp(columns, PanelColumns<T>());
}

// The number of rows of B that are packed at a time.
template <typename T>
int64_t PackedDepth(int64_t depth, int64_t columns) {
  const int64_t block_bytes =
      std::max<int64_t>(1, PanelCount<T>(columns) * PanelColumns<T>() * kDepthBlock * sizeof(T));
  return std::min(depth, std::max<int64_t>(1, kPackedBytes / block_bytes) * kDepthBlock);
}

// Computes kRowBlock rows and kPanelBlock panels of C. `panels` is packed B: for each block of the
// depth, all its panels one after the other.
template <typename T>
void MultiplyRows(const MatrixView<T>& a, int64_t row, int64_t first_panel, const T* panels,
                  int64_t columns, T* c, int64_t c_stride, bool accumulate) {
  alignas(64) T strips[kRowBlock * kDepthBlock];
  const int64_t width = PanelColumns<T>(), all_panels = PanelCount<T>(columns);
  const int64_t last_panel = std::min(first_panel + kPanelBlock, all_panels);
  for (int64_t k = 0; k < a.columns; k += kDepthBlock) {
    MatrixView<T> block = a;
    block.columns = std::min(kDepthBlock, a.columns - k);
    block.data += k * a.column_stride;
    PackStrips(block, row, strips);
    for (int64_t j = first_panel; j < last_panel; ++j) {
      for (int64_t i = row; i < std::min(row + kRowBlock, a.rows); i += kTileRows) {
        RunTile<T>({.a = strips + (i - row) * block.columns,
                    .b = panels + (k * all_panels + j * block.columns) * width,
                    .depth = block.columns,
                    .c = c + i * c_stride + j * width,
                    .c_stride = c_stride,
                    .rows = static_cast<int>(std::min<int64_t>(kTileRows, a.rows - i)),
                    .columns = static_cast<int>(std::min(width, columns - j * width)),
                    .accumulate = accumulate || k > 0});
      }
    }
  }
}

}  // namespace

template <typename T>
size_t MultiplyWorkspace(int64_t depth, int64_t columns) {
  return PanelCount<T>(columns) * PanelColumns<T>() * PackedDepth<T>(depth, columns) * sizeof(T);
}

template <typename T>
void Multiply(int threads, const MatrixView<T>& a, const MatrixView<T>& b, T* c, int64_t c_stride,
              bool accumulate, std::byte* workspace) {
  CAROLE_CHECK_EQ(a.columns, b.rows, "matrix product");
  T* panels = reinterpret_cast<T*>(workspace);
  const int64_t width = PanelColumns<T>(), all_panels = PanelCount<T>(b.columns);
  const int64_t packed_depth = PackedDepth<T>(b.rows, b.columns);
  for (int64_t k = 0; k < b.rows; k += packed_depth) {
    const int64_t depth = std::min(packed_depth, b.rows - k);
    const int64_t blocks = DivideUp(depth, kDepthBlock);
    ForIndices(threads, blocks * all_panels, [&](int64_t task) {
      const int64_t begin = task / all_panels * kDepthBlock, j = task % all_panels;
      MatrixView<T> block = b;
      block.rows = std::min(kDepthBlock, depth - begin);
      block.data += (k + begin) * b.row_stride;
      PackPanel(block, j * width, width, panels + (begin * all_panels + j * block.rows) * width);
    });
    MatrixView<T> a_part = a;
    a_part.columns = depth;
    a_part.data += k * a.column_stride;
    const int64_t groups = DivideUp(all_panels, kPanelBlock);
    ForIndices(threads, DivideUp(a.rows, kRowBlock) * groups, [&](int64_t task) {
      MultiplyRows(a_part, task / groups * kRowBlock, task % groups * kPanelBlock, panels,
                   b.columns, c, c_stride, accumulate || k > 0);
    });
  }
}

template size_t MultiplyWorkspace<float>(int64_t, int64_t);
template size_t MultiplyWorkspace<double>(int64_t, int64_t);
template void Multiply(int, const MatrixView<float>&, const MatrixView<float>&, float*, int64_t,
                       bool, std::byte*);
template void Multiply(int, const MatrixView<double>&, const MatrixView<double>&, double*, int64_t,
                       bool, std::byte*);

}  // namespace carole::reference
