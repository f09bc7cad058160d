// The transforms of Lavin & Gray, "Fast Algorithms for Convolutional Neural Networks" (2015), with
// the interpolation points 0, 5/8, -5/8, 3/2, -3/2 and infinity.
//
// The points decide how large rounding errors are. Errors in fp32 for 64 channels, relative to the
// spread of the results:
//   6e-7   these points; most of it is the rounding of the sums of products
//   9e-7   0, 1, -1, 1/2, -2 (Barabasz et al., "Error Analysis and Improving the Accuracy of
//          Winograd Convolution", 2018)
//   13e-7  the usual points 0, 1, -1, 2, -2
//   2e-7   direct sums
#include "src/backend/onednn/vector/lanes.h"
#include "src/backend/onednn/winograd/winograd_vector.h"

namespace carole::onednn::CAROLE_SIMD_NAMESPACE {
namespace {

#ifdef __AVX512F__
constexpr int kLanes = 16;
#else
constexpr int kLanes = 8;
#endif

using Block = Vec<kLanes>;  // one pixel's or point's channels of one block

template <typename T>
inline Block LoadBlock(const T* p) {
  return Load<kLanes>(p);
}

// The following functions multiply one row or column by a matrix, for the points 0, p, -p, q, -q,
// infinity. Even and odd powers are computed once for p and -p, and once for q and -q.
constexpr float kP = 5.f / 8, kP2 = kP * kP, kP3 = kP * kP2;
constexpr float kQ = 3.f / 2, kQ2 = kQ * kQ, kQ3 = kQ * kQ2;
// The reciprocals of the denominators of Lagrange's polynomials for 0, p and q.
constexpr float kOver0 = 1 / (kP2 * kQ2), kOverP = 1 / (2 * kP2 * (kP2 - kQ2)),
                kOverQ = 1 / (2 * kQ2 * (kQ2 - kP2));

inline void InputTransform(const Block d[6], Block v[6]) {  // B^T
  const Block even_p = d[4] - kQ2 * d[2], odd_p = kP * (d[3] - kQ2 * d[1]);
  const Block even_q = d[4] - kP2 * d[2], odd_q = kQ * (d[3] - kP2 * d[1]);
  v[0] = (d[4] - (kP2 + kQ2) * d[2]) + (kP2 * kQ2) * d[0];
  v[1] = even_p + odd_p;
  v[2] = even_p - odd_p;
  v[3] = even_q + odd_q;
  v[4] = even_q - odd_q;
  v[5] = (d[5] - (kP2 + kQ2) * d[3]) + (kP2 * kQ2) * d[1];
}

inline void FilterTransform(const Block g[3], Block u[6]) {  // G
  const Block even_p = g[0] + kP2 * g[2], odd_p = kP * g[1];
  const Block even_q = g[0] + kQ2 * g[2], odd_q = kQ * g[1];
  u[0] = kOver0 * g[0];
  u[1] = kOverP * (even_p + odd_p);
  u[2] = kOverP * (even_p - odd_p);
  u[3] = kOverQ * (even_q + odd_q);
  u[4] = kOverQ * (even_q - odd_q);
  u[5] = g[2];
}

inline void OutputTransform(const Block m[6], Block y[4]) {  // A^T
  const Block even_p = m[1] + m[2], odd_p = m[1] - m[2];
  const Block even_q = m[3] + m[4], odd_q = m[3] - m[4];
  y[0] = m[0] + (even_p + even_q);
  y[1] = kP * odd_p + kQ * odd_q;
  y[2] = kP2 * even_p + kQ2 * even_q;
  y[3] = (m[5] + kP3 * odd_p) + kQ3 * odd_q;
}

inline void GradientTransform(const Block d[4], Block z[6]) {  // A
  const Block even_p = d[0] + kP2 * d[2], odd_p = kP * d[1] + kP3 * d[3];
  const Block even_q = d[0] + kQ2 * d[2], odd_q = kQ * d[1] + kQ3 * d[3];
  z[0] = d[0];
  z[1] = even_p + odd_p;
  z[2] = even_p - odd_p;
  z[3] = even_q + odd_q;
  z[4] = even_q - odd_q;
  z[5] = d[3];
}

inline void FilterGradientTransform(const Block u[6], Block g[3]) {  // G^T
  const Block even_p = kOverP * (u[1] + u[2]), odd_p = kOverP * (u[1] - u[2]);
  const Block even_q = kOverQ * (u[3] + u[4]), odd_q = kOverQ * (u[3] - u[4]);
  g[0] = kOver0 * u[0] + (even_p + even_q);
  g[1] = kP * odd_p + kQ * odd_q;
  g[2] = (u[5] + kP2 * even_p) + kQ2 * even_q;
}

// Applies the transform to all columns, then to all rows.
template <int kFrom, int kTo, void (*kTransform)(const Block*, Block*)>
inline void Transform(const Block (&from)[kFrom][kFrom], Block (&to)[kTo][kTo]) {
  Block half[kTo][kFrom];
  for (int j = 0; j < kFrom; ++j) {
    Block column[kFrom], result[kTo];
    for (int i = 0; i < kFrom; ++i) column[i] = from[i][j];
    kTransform(column, result);
    for (int i = 0; i < kTo; ++i) half[i][j] = result[i];
  }
  for (int i = 0; i < kTo; ++i) kTransform(half[i], to[i]);
}

// Loads n x n pixels from (row.y, x) on; pixels outside the map are 0.
template <int n, typename T>
inline void LoadTile(const T* map, const TileRow& row, int64_t x, Block (&d)[n][n]) {
  const bool inside = row.y >= 0 && row.y + n <= row.height && x >= 0 && x + n <= row.width;
  const T* first = map + (row.y * row.width + x) * kLanes;
  for (int i = 0; i < n; ++i) {
    const bool has_row = row.y + i >= 0 && row.y + i < row.height;
    for (int j = 0; j < n; ++j) {
      const bool has = inside || (has_row && x + j >= 0 && x + j < row.width);
      d[i][j] = has ? LoadBlock(first + (i * row.width + j) * kLanes) : Block{};
    }
  }
}

template <typename T, int n, void (*kTransform)(const Block*, Block*)>
void TransformTiles(const T* map, const TileRow& row, float* v, int64_t point_stride,
                    int64_t tile_stride) {
  for (int64_t t = 0; t < row.tiles; ++t, v += tile_stride) {
    Block d[n][n], result[6][6];
    LoadTile<n>(map, row, row.x + t * kWinogradTile, d);
    Transform<n, 6, kTransform>(d, result);
    for (int i = 0; i < kWinogradPoints; ++i) Store(v + i * point_stride, result[i / 6][i % 6]);
  }
}

template <typename T>
void Output(const float* m, int64_t point_stride, int64_t tile_stride, const TileRow& row,
            const float* bias, const T* residual, bool relu, T* map) {
  const Block shift = bias == nullptr ? Block{} : LoadBlock(bias);
  for (int64_t t = 0; t < row.tiles; ++t, m += tile_stride) {
    Block d[6][6], y[4][4];
    for (int i = 0; i < kWinogradPoints; ++i) d[i / 6][i % 6] = LoadBlock(m + i * point_stride);
    Transform<6, 4, OutputTransform>(d, y);
    const int64_t x = row.x + t * kWinogradTile;
    for (int i = 0; i < 4 && row.y + i < row.height; ++i) {
      for (int j = 0; j < 4 && x + j < row.width; ++j) {
        const int64_t at = ((row.y + i) * row.width + x + j) * kLanes;
        Block value = y[i][j] + shift;
        if (residual != nullptr) value += LoadBlock(residual + at);
        if (relu) value = Positive(value);
        Store(map + at, value);
      }
    }
  }
}

template <typename T>
void Filter(const T* g, int64_t pairs, int64_t begin, int64_t end, bool rotated, float* u) {
  for (int64_t e = begin; e < end; e += kLanes) {
    Block taps[3][3], result[6][6];
    for (int i = 0; i < 9; ++i)
      taps[i / 3][i % 3] = LoadBlock(g + (rotated ? 8 - i : i) * pairs + e);
    Transform<3, 6, FilterTransform>(taps, result);
    for (int i = 0; i < kWinogradPoints; ++i) Store(u + i * pairs + e, result[i / 6][i % 6]);
  }
}

void FilterGradient(const float* du, int64_t parts, int64_t part_stride, int64_t pairs,
                    int64_t begin, int64_t end, float* dg) {
  for (int64_t e = begin; e < end; e += kLanes) {
    Block d[6][6], taps[3][3];
    for (int i = 0; i < kWinogradPoints; ++i) {
      Block& sum = d[i / 6][i % 6];
      sum = LoadBlock(du + i * pairs + e);
      for (int64_t p = 1; p < parts; ++p) sum += LoadBlock(du + p * part_stride + i * pairs + e);
    }
    Transform<6, 3, FilterGradientTransform>(d, taps);
    for (int i = 0; i < 9; ++i) Store(dg + i * pairs + e, taps[i / 3][i % 3]);
  }
}

template <typename T>
void AddPixels(const T* map, int64_t pixels, double* sums) {
  Block sum = {};
  for (int64_t i = 0; i < pixels; ++i) sum += LoadBlock(map + i * kLanes);
  for (int c = 0; c < kLanes; ++c) sums[c] += sum[c];
}

template <typename T>
constexpr WinogradTransforms<T> kTable = {.input = TransformTiles<T, 6, InputTransform>,
                                          .gradient = TransformTiles<T, 4, GradientTransform>,
                                          .output = Output<T>,
                                          .filter = Filter<T>,
                                          .filter_gradient = FilterGradient,
                                          .add_pixels = AddPixels<T>};

}  // namespace

extern const WinogradTransforms<float> kWinogradFloats;
extern const WinogradTransforms<Bf16> kWinogradBf16s;
const WinogradTransforms<float> kWinogradFloats = kTable<float>;
const WinogradTransforms<Bf16> kWinogradBf16s = kTable<Bf16>;

}  // namespace carole::onednn::CAROLE_SIMD_NAMESPACE
