// The register tile of gemm.h, compiled once for each x86-64 level. It uses no templates of the
// standard library. The linker keeps only one copy of each template instance, and older CPUs must
// not run a copy that was compiled for newer ones.
#include "src/backend/reference/math/gemm.h"

namespace carole::reference::CAROLE_SIMD_NAMESPACE {
namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64, kVectors = 4;  // 16 of 32 vector registers hold sums
#elif defined(__AVX__)
constexpr int kVectorBytes = 32, kVectors = 2;  // 8 of 16 vector registers hold sums
#else
constexpr int kVectorBytes = 16, kVectors = 2;
#endif

template <typename T>
struct Tile {
  typedef T Vector __attribute__((vector_size(kVectorBytes)));
  typedef T Unaligned __attribute__((vector_size(kVectorBytes), aligned(alignof(T)), may_alias));
  static constexpr int kLanes = kVectorBytes / sizeof(T);
  static constexpr int kWidth = kVectors * kLanes;
};

template <typename T>
void Run(const TileArguments<T>& tile) {
  using Vector = typename Tile<T>::Vector;
  Vector sums[kTileRows][kVectors] = {};
  const T* a = tile.a;
  const T* b = tile.b;
  for (int64_t k = 0; k < tile.depth; ++k, a += kTileRows, b += Tile<T>::kWidth) {
    Vector row[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      row[j] = *reinterpret_cast<const typename Tile<T>::Unaligned*>(b + j * Tile<T>::kLanes);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sums[i][j] += row[j] * a[i];
    }
  }
  T result[kTileRows][Tile<T>::kWidth];
  __builtin_memcpy(result, sums, sizeof(result));
  for (int i = 0; i < tile.rows; ++i) {
    T* c = tile.c + i * tile.c_stride;
    for (int j = 0; j < tile.columns; ++j) {
      c[j] = tile.accumulate ? c[j] + result[i][j] : result[i][j];
    }
  }
}

}  // namespace

int PanelWidth(const float*) { return Tile<float>::kWidth; }
int PanelWidth(const double*) { return Tile<double>::kWidth; }
void MultiplyTile(const TileArguments<float>& tile) { Run(tile); }
void MultiplyTile(const TileArguments<double>& tile) { Run(tile); }

}  // namespace carole::reference::CAROLE_SIMD_NAMESPACE
