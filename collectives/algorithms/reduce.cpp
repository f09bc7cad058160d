#include "collectives/algorithms/reduce.h"

#include "src/core/simd.h"

namespace carole::collectives {

// The variants of reduce_simd.cpp, one for each x86-64 level.
#define CAROLE_DECLARE(level)                             \
  namespace level {                                       \
  void AddTo(float*, const float*, size_t);               \
  void AddTo(double*, const double*, size_t);             \
  void SumRanks(float* const*, size_t, float*, size_t);   \
  void SumRanks(double* const*, size_t, double*, size_t); \
  void SumRanksToAll(float* const*, size_t, size_t);      \
  void SumRanksToAll(double* const*, size_t, size_t);     \
  void RoundToBf16(const float*, uint16_t*, size_t);      \
  void WidenBf16(const uint16_t*, float*, size_t);        \
  void AddBf16To(float*, const uint16_t*, size_t);        \
  }
CAROLE_DECLARE(simd_v2)
CAROLE_DECLARE(simd_v3)
CAROLE_DECLARE(simd_v4)
#undef CAROLE_DECLARE

template <typename T>
void AddTo(T* into, const T* from, size_t count) {
  using F = void (*)(T*, const T*, size_t);
  static const F f = PickSimd<F>(simd_v2::AddTo, simd_v3::AddTo, simd_v4::AddTo);
  f(into, from, count);
}

template <typename T>
void SumRanks(T* const* ranks, size_t n, T* into, size_t count) {
  using F = void (*)(T* const*, size_t, T*, size_t);
  static const F f = PickSimd<F>(simd_v2::SumRanks, simd_v3::SumRanks, simd_v4::SumRanks);
  f(ranks, n, into, count);
}

template <typename T>
void SumRanksToAll(T* const* ranks, size_t n, size_t count) {
  using F = void (*)(T* const*, size_t, size_t);
  static const F f =
      PickSimd<F>(simd_v2::SumRanksToAll, simd_v3::SumRanksToAll, simd_v4::SumRanksToAll);
  f(ranks, n, count);
}

void RoundToBf16(const float* from, uint16_t* into, size_t count) {
  static const auto f = PickSimd(simd_v2::RoundToBf16, simd_v3::RoundToBf16, simd_v4::RoundToBf16);
  f(from, into, count);
}

void WidenBf16(const uint16_t* from, float* into, size_t count) {
  static const auto f = PickSimd(simd_v2::WidenBf16, simd_v3::WidenBf16, simd_v4::WidenBf16);
  f(from, into, count);
}

void AddBf16To(float* into, const uint16_t* from, size_t count) {
  static const auto f = PickSimd(simd_v2::AddBf16To, simd_v3::AddBf16To, simd_v4::AddBf16To);
  f(into, from, count);
}

template void AddTo(float*, const float*, size_t);
template void AddTo(double*, const double*, size_t);
template void SumRanks(float* const*, size_t, float*, size_t);
template void SumRanks(double* const*, size_t, double*, size_t);
template void SumRanksToAll(float* const*, size_t, size_t);
template void SumRanksToAll(double* const*, size_t, size_t);

}  // namespace carole::collectives
