// Vectors of 16-bit integers, in lanes of 128 bits: one lane at x86-64-v2, two at -v3 and -v4. Only
// files that are compiled once for each x86-64 level include this header. Everything is in an
// anonymous namespace, so the versions do not collide.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace carole::io::jpeg::CAROLE_SIMD_NAMESPACE {
namespace {

// CAROLE_VECTOR(name) is an intrinsic of the level's vector width, such as _mm256_add_epi16.
// CAROLE_WHOLE(name) is one for the whole register, such as _mm256_or_si256. Arithmetic wraps
// around.
#ifdef __AVX2__
constexpr int kLanes = 2;
using Vector = __m256i;
#define CAROLE_VECTOR(name) _mm256_##name
#define CAROLE_WHOLE(name) _mm256_##name##_si256
#else
constexpr int kLanes = 1;
using Vector = __m128i;
#define CAROLE_VECTOR(name) _mm_##name
#define CAROLE_WHOLE(name) _mm_##name##_si128
#endif

inline Vector Add(Vector a, Vector b) { return CAROLE_VECTOR(add_epi16)(a, b); }
inline Vector Subtract(Vector a, Vector b) { return CAROLE_VECTOR(sub_epi16)(a, b); }
inline Vector MultiplyLow(Vector a, Vector b) { return CAROLE_VECTOR(mullo_epi16)(a, b); }
// Returns the upper 16 bits of the signed products.
inline Vector MultiplyHigh(Vector a, int16_t b) {
  return CAROLE_VECTOR(mulhi_epi16)(a, CAROLE_VECTOR(set1_epi16)(b));
}
inline Vector Fill8(int value) { return CAROLE_VECTOR(set1_epi8)(static_cast<char>(value)); }
inline Vector Fill16(int value) { return CAROLE_VECTOR(set1_epi16)(static_cast<int16_t>(value)); }

inline Vector Load(const uint8_t* from) {
  return CAROLE_WHOLE(loadu)(reinterpret_cast<const Vector*>(from));
}

// Copies 16 bytes to each lane.
inline Vector Repeat(__m128i lane) {
#ifdef __AVX2__
  return _mm256_broadcastsi128_si256(lane);
#else
  return lane;
#endif
}

inline __m128i Lane(Vector v, int lane) {
#ifdef __AVX2__
  return lane == 0 ? _mm256_castsi256_si128(v) : _mm256_extracti128_si256(v, 1);
#else
  static_cast<void>(lane);
  return v;
#endif
}

inline __m128i LoadLane(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}
inline void StoreLane(__m128i lane, void* to) { _mm_storeu_si128(static_cast<__m128i*>(to), lane); }

}  // namespace
}  // namespace carole::io::jpeg::CAROLE_SIMD_NAMESPACE
