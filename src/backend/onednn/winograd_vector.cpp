// Lavin & Gray, "Fast Algorithms for Convolutional Neural Networks" (2015), with the points 0, 1,
// -1, 1/2, -2 and infinity, which Barabasz et al., "Error Analysis and Improving the Accuracy of
// Winograd Convolution" (2018), found the most accurate for tiles of 4x4: in fp32 its results are
// off by 1e-6 of their spread, the direct sum's by 3e-7.
#include "src/backend/onednn/winograd_vector.h"

#include <cstring>

namespace carole::onednn::CAROLE_SIMD_NAMESPACE {
namespace {

constexpr int kLanes = kWinogradLanes;
typedef float Vec __attribute__((vector_size(kLanes * sizeof(float))));

inline Vec Load(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
inline void Store(float* p, Vec v) { std::memcpy(p, &v, sizeof(v)); }

// The matrices, each applied to one row or column.

inline void InputTransform(const Vec d[6], Vec v[6]) {  // B^T
  v[0] = (d[0] + d[4]) + 1.5f * (d[3] - d[1]) - 2.f * d[2];
  v[1] = (d[4] - d[1]) + 0.5f * d[2] + 2.5f * d[3];
  v[2] = (d[4] + d[1]) - 2.5f * d[2] + 0.5f * d[3];
  v[3] = (d[4] - d[2]) + 2.f * (d[3] - d[1]);
  v[4] = (d[4] - d[2]) + 0.5f * (d[1] - d[3]);
  v[5] = (d[1] + d[5]) + 1.5f * (d[4] - d[2]) - 2.f * d[3];
}

inline void FilterTransform(const Vec g[3], Vec u[6]) {  // G
  const Vec even = (g[0] + g[2]) * (1.f / 3), odd = g[1] * (1.f / 3);
  u[0] = g[0];
  u[1] = even + odd;
  u[2] = odd - even;
  u[3] = (-4.f / 15) * (4.f * g[0] + 2.f * g[1] + g[2]);
  u[4] = (1.f / 15) * (g[0] - 2.f * g[1] + 4.f * g[2]);
  u[5] = g[2];
}

inline void OutputTransform(const Vec m[6], Vec y[4]) {  // A^T
  const Vec sum = m[1] + m[2], difference = m[1] - m[2];
  y[0] = m[0] + sum + (m[3] + m[4]);
  y[1] = difference + 0.5f * m[3] - 2.f * m[4];
  y[2] = sum + 0.25f * m[3] + 4.f * m[4];
  y[3] = difference + 0.125f * m[3] - 8.f * m[4] + m[5];
}

inline void GradientTransform(const Vec d[4], Vec z[6]) {  // A
  const Vec even = d[0] + d[2], odd = d[1] + d[3];
  z[0] = d[0];
  z[1] = even + odd;
  z[2] = even - odd;
  z[3] = d[0] + 0.5f * d[1] + 0.25f * d[2] + 0.125f * d[3];
  z[4] = d[0] - 2.f * d[1] + 4.f * d[2] - 8.f * d[3];
  z[5] = d[3];
}

inline void FilterGradientTransform(const Vec u[6], Vec g[3]) {  // G^T
  const Vec third = (1.f / 3) * (u[1] - u[2]);
  const Vec a = (-4.f / 15) * u[3], b = (1.f / 15) * u[4];
  g[0] = u[0] + third + 4.f * a + b;
  g[1] = (1.f / 3) * (u[1] + u[2]) + 2.f * a - 2.f * b;
  g[2] = third + a + 4.f * b + u[5];
}

// Rows, then columns: from[i][j] -> to[i][j].
template <int kFrom, int kTo, void (*kTransform)(const Vec*, Vec*)>
inline void Transform(const Vec (&from)[kFrom][kFrom], Vec (&to)[kTo][kTo]) {
  Vec half[kTo][kFrom];
  for (int j = 0; j < kFrom; ++j) {
    Vec column[kFrom], result[kTo];
    for (int i = 0; i < kFrom; ++i) column[i] = from[i][j];
    kTransform(column, result);
    for (int i = 0; i < kTo; ++i) half[i][j] = result[i];
  }
  for (int i = 0; i < kTo; ++i) kTransform(half[i], to[i]);
}

// n x n pixels from (y, x) on, zero outside of the map.
template <int n>
inline void LoadTile(const float* map, const TileRow& row, int64_t x, Vec (&d)[n][n]) {
  const bool inside = row.y >= 0 && row.y + n <= row.height && x >= 0 && x + n <= row.width;
  const float* first = map + (row.y * row.width + x) * kLanes;
  for (int i = 0; i < n; ++i) {
    const bool has_row = row.y + i >= 0 && row.y + i < row.height;
    for (int j = 0; j < n; ++j) {
      const bool has = inside || (has_row && x + j >= 0 && x + j < row.width);
      d[i][j] = has ? Load(first + (i * row.width + j) * kLanes) : Vec{};
    }
  }
}

template <int n, void (*kTransform)(const Vec*, Vec*)>
void TransformTiles(const float* map, const TileRow& row, float* v, int64_t apart, int64_t pitch) {
  for (int64_t t = 0; t < row.tiles; ++t, v += pitch) {
    Vec d[n][n], result[6][6];
    LoadTile<n>(map, row, row.x + t * kWinogradTile, d);
    Transform<n, 6, kTransform>(d, result);
    for (int i = 0; i < kWinogradPoints; ++i) Store(v + i * apart, result[i / 6][i % 6]);
  }
}

void Output(const float* m, int64_t apart, int64_t pitch, const TileRow& row, const float* bias,
            const float* residual, bool relu, float* map) {
  const Vec shift = bias == nullptr ? Vec{} : Load(bias);
  for (int64_t t = 0; t < row.tiles; ++t, m += pitch) {
    Vec d[6][6], y[4][4];
    for (int i = 0; i < kWinogradPoints; ++i) d[i / 6][i % 6] = Load(m + i * apart);
    Transform<6, 4, OutputTransform>(d, y);
    const int64_t x = row.x + t * kWinogradTile;
    for (int i = 0; i < 4 && row.y + i < row.height; ++i) {
      for (int j = 0; j < 4 && x + j < row.width; ++j) {
        const int64_t at = ((row.y + i) * row.width + x + j) * kLanes;
        Vec value = y[i][j] + shift;
        if (residual != nullptr) value += Load(residual + at);
        if (relu) value = value < 0 ? Vec{} : value;  // NaN stays NaN
        Store(map + at, value);
      }
    }
  }
}

void Filter(const float* g, int64_t pairs, int64_t begin, int64_t end, bool rotated, float* u) {
  for (int64_t e = begin; e < end; e += kLanes) {
    Vec taps[3][3], result[6][6];
    for (int i = 0; i < 9; ++i) taps[i / 3][i % 3] = Load(g + (rotated ? 8 - i : i) * pairs + e);
    Transform<3, 6, FilterTransform>(taps, result);
    for (int i = 0; i < kWinogradPoints; ++i) Store(u + i * pairs + e, result[i / 6][i % 6]);
  }
}

void FilterGradient(const float* du, int64_t parts, int64_t part_pitch, int64_t pairs,
                    int64_t begin, int64_t end, float* dg) {
  for (int64_t e = begin; e < end; e += kLanes) {
    Vec d[6][6], taps[3][3];
    for (int i = 0; i < kWinogradPoints; ++i) {
      Vec& sum = d[i / 6][i % 6];
      sum = Load(du + i * pairs + e);
      for (int64_t p = 1; p < parts; ++p) sum += Load(du + p * part_pitch + i * pairs + e);
    }
    Transform<6, 3, FilterGradientTransform>(d, taps);
    for (int i = 0; i < 9; ++i) Store(dg + i * pairs + e, taps[i / 3][i % 3]);
  }
}

}  // namespace

extern const WinogradTransforms kWinograd;
const WinogradTransforms kWinograd = {.input = TransformTiles<6, InputTransform>,
                                      .gradient = TransformTiles<4, GradientTransform>,
                                      .output = Output,
                                      .filter = Filter,
                                      .filter_gradient = FilterGradient};

}  // namespace carole::onednn::CAROLE_SIMD_NAMESPACE
