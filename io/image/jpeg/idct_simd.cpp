// The inverse DCT of pixels_simd.h. Compiled once for each x86-64 level (carole_simd_source).
//
// The algorithm of Arai, Agui and Nakajima (1988) transforms columns first, then rows. It needs a
// scaled input: the scale factors are part of the multipliers (plane.cpp). The multipliers also add
// two fractional bits, which are kept to the end.
//
// A product with a constant is the upper 16 bits of (4 * value) * (64 * 256 * constant), which is
// value * constant, truncated to an integer.
#include <cstring>

#include "io/image/jpeg/pixels_simd.h"
#include "io/image/jpeg/vector_simd.h"

namespace carole::io::jpeg::CAROLE_SIMD_NAMESPACE {

void InverseDct(const BlockRow& blocks, const int16_t* multipliers, uint8_t* samples,
                ptrdiff_t stride);

namespace {

constexpr int kExtraBits = 2;
constexpr int kFinalShift = kExtraBits + 3;

constexpr int16_t Constant(int times_256) { return static_cast<int16_t>(times_256 * 64); }
constexpr int16_t kRoot2 = Constant(362);               // 1.414
constexpr int16_t kTwoC2 = Constant(473);               // 1.848: 2 cos(pi / 8)
constexpr int16_t kTwoC2MinusC6 = Constant(277);        // 1.082
constexpr int16_t kTwoC2PlusC6Minus1 = Constant(-413);  // -1.613 of -2.613, which exceeds 16 bits

inline Vector Scaled(Vector v) { return CAROLE_VECTOR(slli_epi16)(v, kExtraBits); }

// Transforms eight vectors in one direction. Each element of a vector belongs to another transform.
inline void Transform(Vector (&v)[8]) {
  const Vector sum04 = Add(v[0], v[4]);
  const Vector difference04 = Subtract(v[0], v[4]);
  const Vector sum26 = Add(v[2], v[6]);
  const Vector rotated26 = Subtract(MultiplyHigh(Scaled(Subtract(v[2], v[6])), kRoot2), sum26);
  const Vector even0 = Add(sum04, sum26);
  const Vector even3 = Subtract(sum04, sum26);
  const Vector even1 = Add(difference04, rotated26);
  const Vector even2 = Subtract(difference04, rotated26);

  const Vector sum53 = Add(v[5], v[3]);
  const Vector difference53 = Subtract(v[5], v[3]);
  const Vector sum17 = Add(v[1], v[7]);
  const Vector difference17 = Subtract(v[1], v[7]);
  const Vector odd7 = Add(sum17, sum53);
  const Vector root = MultiplyHigh(Scaled(Subtract(sum17, sum53)), kRoot2);
  const Vector scaled53 = Scaled(difference53);
  const Vector scaled17 = Scaled(difference17);
  const Vector both = MultiplyHigh(Add(scaled53, scaled17), kTwoC2);
  const Vector rotated53 =
      Add(Subtract(MultiplyHigh(scaled53, kTwoC2PlusC6Minus1), difference53), both);
  const Vector rotated17 = Subtract(MultiplyHigh(scaled17, kTwoC2MinusC6), both);
  const Vector odd6 = Subtract(rotated53, odd7);
  const Vector odd5 = Subtract(root, odd6);
  const Vector odd4 = Add(rotated17, odd5);

  v[0] = Add(even0, odd7);
  v[7] = Subtract(even0, odd7);
  v[1] = Add(even1, odd6);
  v[6] = Subtract(even1, odd6);
  v[2] = Add(even2, odd5);
  v[5] = Subtract(even2, odd5);
  v[4] = Add(even3, odd4);
  v[3] = Subtract(even3, odd4);
}

// Transposes the 8x8 matrix of 16-bit values in each lane. The index of a value has 6 bits: 3 of
// the row, then 3 of the column. Each round interleaves rows i and i + 4, which moves the index's
// first bit to its end. After three rounds the bits of row and column have changed places.
inline void Transpose(Vector (&v)[8]) {
  Vector a[8], b[8];
  for (int i = 0; i < 4; ++i) {
    a[2 * i] = CAROLE_VECTOR(unpacklo_epi16)(v[i], v[i + 4]);
    a[2 * i + 1] = CAROLE_VECTOR(unpackhi_epi16)(v[i], v[i + 4]);
  }
  for (int i = 0; i < 4; ++i) {
    b[2 * i] = CAROLE_VECTOR(unpacklo_epi16)(a[i], a[i + 4]);
    b[2 * i + 1] = CAROLE_VECTOR(unpackhi_epi16)(a[i], a[i + 4]);
  }
  for (int i = 0; i < 4; ++i) {
    v[2 * i] = CAROLE_VECTOR(unpacklo_epi16)(b[i], b[i + 4]);
    v[2 * i + 1] = CAROLE_VECTOR(unpackhi_epi16)(b[i], b[i + 4]);
  }
}

// Converts columns of 16-bit values to rows of bytes: removes the fractional bits, clamps to
// -128..127 and adds 128. Each lane of rows[i] holds the rows 2 * i and 2 * i + 1 of a block.
inline void ToRows(const Vector (&v)[8], Vector (&rows)[4]) {
  Vector c[4], a[4], b[4];
  for (int i = 0; i < 4; ++i) {
    const Vector low = CAROLE_VECTOR(srai_epi16)(v[2 * i], kFinalShift);
    const Vector high = CAROLE_VECTOR(srai_epi16)(v[2 * i + 1], kFinalShift);
    c[i] = CAROLE_VECTOR(add_epi8)(CAROLE_VECTOR(packs_epi16)(low, high), Fill8(128));
  }
  for (int i = 0; i < 2; ++i) {
    a[2 * i] = CAROLE_VECTOR(unpacklo_epi8)(c[i], c[i + 2]);
    a[2 * i + 1] = CAROLE_VECTOR(unpackhi_epi8)(c[i], c[i + 2]);
  }
  for (int i = 0; i < 2; ++i) {
    b[2 * i] = CAROLE_VECTOR(unpacklo_epi8)(a[i], a[i + 2]);
    b[2 * i + 1] = CAROLE_VECTOR(unpackhi_epi8)(a[i], a[i + 2]);
  }
  for (int i = 0; i < 2; ++i) {
    rows[2 * i] = CAROLE_VECTOR(unpacklo_epi8)(b[i], b[i + 2]);
    rows[2 * i + 1] = CAROLE_VECTOR(unpackhi_epi8)(b[i], b[i + 2]);
  }
}

// Loads row `row` of as many adjacent blocks as a vector has lanes.
inline Vector LoadRow(const int16_t* blocks, int row) {
#ifdef __AVX2__
  return _mm256_inserti128_si256(_mm256_castsi128_si256(LoadLane(blocks + row * 8)),
                                 LoadLane(blocks + kBlockStride + row * 8), 1);
#else
  return LoadLane(blocks + row * 8);
#endif
}

// Stores the rows of the first `lanes` blocks.
inline void StoreRows(const Vector (&rows)[4], uint8_t* samples, ptrdiff_t stride, int lanes) {
  for (int lane = 0; lane < lanes; ++lane, samples += 8) {
    for (int i = 0; i < 4; ++i) {
      const __m128i two = Lane(rows[i], lane);
      const int64_t upper = _mm_cvtsi128_si64(two);
      const int64_t lower = _mm_extract_epi64(two, 1);
      std::memcpy(samples + 2 * i * stride, &upper, 8);
      std::memcpy(samples + (2 * i + 1) * stride, &lower, 8);
    }
  }
}

// Transforms a block that has only a DC coefficient: all samples are equal, because the transform
// passes this coefficient through unchanged.
inline void FillBlock(int16_t coefficient, int16_t multiplier, uint8_t* samples, ptrdiff_t stride) {
  const int value = static_cast<int16_t>(coefficient * multiplier) >> kFinalShift;
  const int sample = value < -128 ? 0 : value > 127 ? 255 : value + 128;
  for (int y = 0; y < 8; ++y) std::memset(samples + y * stride, sample, 8);
}

inline void TransformBlocks(const int16_t* blocks, const int16_t* multipliers, uint8_t* samples,
                            ptrdiff_t stride, int lanes) {
  Vector v[8], rows[4];
  for (int i = 0; i < 8; ++i)
    v[i] = MultiplyLow(LoadRow(blocks, i), Repeat(LoadLane(multipliers + i * 8)));
  Transform(v);
  Transpose(v);
  Transform(v);
  ToRows(v, rows);
  StoreRows(rows, samples, stride, lanes);
}

}  // namespace

void InverseDct(const BlockRow& blocks, const int16_t* multipliers, uint8_t* samples,
                ptrdiff_t stride) {
  for (int i = 0; i < blocks.count; i += kLanes) {
    const int lanes = blocks.count - i < kLanes ? blocks.count - i : kLanes;
    const int16_t* first = blocks.coefficients + i * kBlockStride;
    int last_nonzero = 0;
    for (int lane = 0; lane < lanes; ++lane) last_nonzero |= blocks.last_nonzero[i + lane];
    if (last_nonzero != 0) {
      TransformBlocks(first, multipliers, samples + i * 8, stride, lanes);
      continue;
    }
    for (int lane = 0; lane < lanes; ++lane)
      FillBlock(first[lane * kBlockStride], multipliers[0], samples + (i + lane) * 8, stride);
  }
}

}  // namespace carole::io::jpeg::CAROLE_SIMD_NAMESPACE
