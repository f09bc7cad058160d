// Functions of vectors, accurate to a few roundings of fp32. Only for sources that
// carole_simd_source() compiles once for each x86-64 level. NaN stays NaN.
#pragma once

#include "src/backend/onednn/vector/lanes.h"

namespace carole::onednn::CAROLE_SIMD_NAMESPACE {
namespace {

// exp(x), with x limited to [-87, 88], where the result is a normal number. It is 2^n * exp(r) with
// |r| <= ln(2) / 2 and a polynomial for exp(r) (Moshier's Cephes library).
template <typename V>
inline V Exp(V x) {
  constexpr float kLog2OfE = 1.44269504088896341f;
  // n becomes the low bits of the mantissa when this is added to it.
  constexpr float kShift = 0x1.8p23f;
  // The two parts of ln(2). The product of n and the first one is exact.
  constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  x = x < -87.0f ? V{} - 87.0f : x;
  x = x > 88.0f ? V{} + 88.0f : x;
  const V shifted = x * kLog2OfE + kShift, n = shifted - kShift;
  const V r = x - n * kLn2High - n * kLn2Low;
  V p = V{} + 1.9875691500e-4f;
  constexpr float kCoefficients[] = {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f,
                                     1.6666665459e-1f, 5.0000001201e-1f};
  for (const float c : kCoefficients) p = p * r + c;
  using Bits = Bits32<sizeof(V) / sizeof(float)>;
  const auto power = std::bit_cast<V>((std::bit_cast<Bits>(shifted) << 23) + 0x3F800000);
  return (p * (r * r) + r + 1.0f) * power;
}

// 1 / (1 + exp(-x))
template <typename V>
inline V Sigmoid(V x) {
  return 1.0f / (1.0f + Exp(-x));
}

// The distribution function of the normal distribution, (1 + erf(x / sqrt(2))) / 2. The formula is
// erfc(z) = t * exp(-z^2 + polynomial of t) with t = 1 / (1 + z/2), for z >= 0 (Press et al.,
// Numerical Recipes, 6.2). It keeps digits where the result is near 0.
template <typename V>
inline V NormalDistribution(V x) {
  constexpr float kSqrtHalf = 0.70710678118654752f;
  const V z = (x < 0.0f ? -x : x) * kSqrtHalf, t = 1.0f / (1.0f + 0.5f * z);
  V p = V{} + 0.17087277f;
  constexpr float kCoefficients[] = {-0.82215223f, 1.48851587f,  -1.13520398f,
                                     0.27886807f,  -0.18628806f, 0.09678418f,
                                     0.37409196f,  1.00002368f,  -1.26551223f};
  for (const float c : kCoefficients) p = p * t + c;
  const V half = 0.5f * t * Exp(p - z * z);
  return x < 0.0f ? half : 1.0f - half;
}

// y[i] = f(a[i]), in vectors of 16. y may be a.
template <typename T, typename F>
inline void Map(const T* a, T* y, int64_t count, const F& f) {
  constexpr int kLanes = 16;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) Store(y + i, f(Load<kLanes>(a + i)));
  if (i == count) return;
  T rest[kLanes] = {};
  const size_t bytes = sizeof(T) * static_cast<size_t>(count - i);
  std::memcpy(rest, a + i, bytes);
  Store(rest, f(Load<kLanes>(rest)));
  std::memcpy(y + i, rest, bytes);
}

// y[i] = f(a[i], b[i]). y may be a or b.
template <typename T, typename F>
inline void Map(const T* a, const T* b, T* y, int64_t count, const F& f) {
  constexpr int kLanes = 16;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    Store(y + i, f(Load<kLanes>(a + i), Load<kLanes>(b + i)));
  if (i == count) return;
  T left[kLanes] = {}, right[kLanes] = {};
  const size_t bytes = sizeof(T) * static_cast<size_t>(count - i);
  std::memcpy(left, a + i, bytes);
  std::memcpy(right, b + i, bytes);
  Store(left, f(Load<kLanes>(left), Load<kLanes>(right)));
  std::memcpy(y + i, left, bytes);
}

}  // namespace
}  // namespace carole::onednn::CAROLE_SIMD_NAMESPACE
