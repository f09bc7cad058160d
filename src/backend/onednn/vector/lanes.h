// Vector types of the compiler, with loads from and stores to memory that holds float or Bf16. Only
// for sources that carole_simd_source() compiles once for each x86-64 level.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "src/core/float16.h"

namespace carole::onednn::CAROLE_SIMD_NAMESPACE {
namespace {

template <typename T, int kLanes>
struct VectorOf {
  typedef T Type __attribute__((vector_size(kLanes * sizeof(T))));
};
template <typename T>
struct VectorOf<T, 1> {
  typedef T Type;
};
template <int kLanes>
using Vec = typename VectorOf<float, kLanes>::Type;
template <int kLanes>
using Bits32 = typename VectorOf<uint32_t, kLanes>::Type;
template <int kLanes>
using Bits16 = typename VectorOf<uint16_t, kLanes>::Type;

template <int kLanes>
inline Vec<kLanes> Load(const float* p) {
  Vec<kLanes> v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

template <int kLanes>
inline Vec<kLanes> Load(const Bf16* p) {
  if constexpr (kLanes == 1) {
    return static_cast<float>(*p);
  } else {
    Bits16<kLanes> narrow;
    std::memcpy(&narrow, p, sizeof(narrow));
    return std::bit_cast<Vec<kLanes>>(__builtin_convertvector(narrow, Bits32<kLanes>) << 16);
  }
}

template <typename V>
inline void Store(float* p, V v) {
  std::memcpy(p, &v, sizeof(v));
}

inline void Store(Bf16* p, float v) { *p = Bf16(v); }

// Rounds as Bf16(float) does: to nearest even; NaN stays NaN.
template <typename V>
inline void Store(Bf16* p, V v) {
  constexpr int kLanes = sizeof(V) / sizeof(float);
  const auto wide = std::bit_cast<Bits32<kLanes>>(v);
  const auto rounded = (wide + 0x7FFF + ((wide >> 16) & 1)) >> 16;
  const auto bits = (wide & 0x7FFFFFFF) > 0x7F800000 ? (wide >> 16) | 0x40 : rounded;
  const auto narrow = __builtin_convertvector(bits, Bits16<kLanes>);
  std::memcpy(p, &narrow, sizeof(narrow));
}

// max(v, 0)
template <typename V>
inline V Positive(V v) {
  return v < 0 ? V{} : v;  // NaN stays NaN
}

// Calls f.operator()<kLanes>(first lane) with kLanes = 16, then 8, 4 and 1, until all lanes are
// covered.
template <typename F>
inline void ForLanes(int64_t lanes, F f) {
  int64_t lane = 0;
  for (; lane + 16 <= lanes; lane += 16) f.template operator()<16>(lane);
  for (; lane + 8 <= lanes; lane += 8) f.template operator()<8>(lane);
  for (; lane + 4 <= lanes; lane += 4) f.template operator()<4>(lane);
  for (; lane < lanes; ++lane) f.template operator()<1>(lane);
}

}  // namespace
}  // namespace carole::onednn::CAROLE_SIMD_NAMESPACE
