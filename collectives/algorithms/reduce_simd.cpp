// The loops of reduce.h, compiled once for each x86-64 level (carole_simd_source). They are plain,
// so that the compiler vectorizes them.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "src/core/float16.h"

namespace carole::collectives::CAROLE_SIMD_NAMESPACE {

namespace {

constexpr size_t kBlock = 2048;  // bytes of the running sum: stays in the first-level cache
template <typename T>
constexpr size_t kStep = kBlock / sizeof(T);

template <typename T>
void Add(T* into, const T* from, size_t count) {
#pragma omp simd
  for (size_t i = 0; i < count; ++i) into[i] += from[i];
}

// Puts the tree's sum of elements [begin, begin + count) of all ranks into `sum`; count <= kStep.
template <typename T>
void SumBlock(T* const* ranks, size_t n, T* sum, size_t begin, size_t count) {
  if (n == 1) {
    std::memcpy(sum, ranks[0] + begin, count * sizeof(T));
    return;
  }
  const size_t num_left = std::bit_floor(n - 1);
  SumBlock(ranks, num_left, sum, begin, count);
  if (n - num_left == 1) return Add(sum, ranks[num_left] + begin, count);
  alignas(64) T right[kStep<T>];
  SumBlock(ranks + num_left, n - num_left, right, begin, count);
  Add(sum, right, count);
}

template <typename T>
void SumTwoToAll(T* a, T* b, size_t count) {
#pragma omp simd
  for (size_t i = 0; i < count; ++i) a[i] = b[i] = a[i] + b[i];
}

template <typename T>
void SumFourToAll(T* a, T* b, T* c, T* d, size_t count) {
#pragma omp simd
  for (size_t i = 0; i < count; ++i) {
    a[i] = b[i] = c[i] = d[i] = (a[i] + b[i]) + (c[i] + d[i]);
  }
}

template <typename T>
void SumToAll(T* const* ranks, size_t n, size_t count) {
  if (n == 2) return SumTwoToAll(ranks[0], ranks[1], count);
  if (n == 4) return SumFourToAll(ranks[0], ranks[1], ranks[2], ranks[3], count);
  alignas(64) T sum[kStep<T>];
  for (size_t begin = 0; begin < count; begin += kStep<T>) {
    const size_t length = std::min(kStep<T>, count - begin);
    SumBlock(ranks, n, sum, begin, length);
    for (size_t r = 0; r < n; ++r) std::memcpy(ranks[r] + begin, sum, length * sizeof(T));
  }
}

template <typename T>
void Sum(T* const* ranks, size_t n, T* into, size_t count) {
  alignas(64) T sum[kStep<T>];
  for (size_t begin = 0; begin < count; begin += kStep<T>) {
    const size_t length = std::min(kStep<T>, count - begin);
    SumBlock(ranks, n, sum, begin, length);
    std::memcpy(into + begin, sum, length * sizeof(T));
  }
}

float Widen(uint16_t x) { return std::bit_cast<Bf16>(x); }

}  // namespace

void AddTo(float* into, const float* from, size_t count) { Add(into, from, count); }
void AddTo(double* into, const double* from, size_t count) { Add(into, from, count); }
void SumRanks(float* const* ranks, size_t n, float* into, size_t count) {
  Sum(ranks, n, into, count);
}
void SumRanks(double* const* ranks, size_t n, double* into, size_t count) {
  Sum(ranks, n, into, count);
}
void SumRanksToAll(float* const* ranks, size_t n, size_t count) { SumToAll(ranks, n, count); }
void SumRanksToAll(double* const* ranks, size_t n, size_t count) { SumToAll(ranks, n, count); }

void RoundToBf16(const float* from, uint16_t* into, size_t count) {
#pragma omp simd
  for (size_t i = 0; i < count; ++i) into[i] = Bf16(from[i]).bits;
}

void WidenBf16(const uint16_t* from, float* into, size_t count) {
#pragma omp simd
  for (size_t i = 0; i < count; ++i) into[i] = Widen(from[i]);
}

void AddBf16To(float* into, const uint16_t* from, size_t count) {
#pragma omp simd
  for (size_t i = 0; i < count; ++i) into[i] += Widen(from[i]);
}

}  // namespace carole::collectives::CAROLE_SIMD_NAMESPACE
