// Compiled once for each x86-64 level (carole_simd_source); the loops are plain so that the
// compiler vectorises.
#include <algorithm>
#include <cstddef>
#include <cstring>

namespace carole::collectives::CAROLE_SIMD_NAMESPACE {

namespace {

constexpr size_t kBlock = 2048;  // bytes of the running sum of many ranks: stays in the first cache

template <typename T>
void Add(T* into, const T* from, size_t count) {
#pragma omp simd
  for (size_t i = 0; i < count; ++i) into[i] += from[i];
}

template <typename T>
void SumBlock(T* const* ranks, size_t n, T* sum, size_t begin, size_t count) {
  std::memcpy(sum, ranks[0] + begin, count * sizeof(T));
  for (size_t r = 1; r < n; ++r) Add(sum, ranks[r] + begin, count);
}

template <typename T>
void SumToAll(T* const* ranks, size_t n, size_t count) {
  if (n == 2) {
    T* a = ranks[0];
    T* b = ranks[1];
#pragma omp simd
    for (size_t i = 0; i < count; ++i) a[i] = b[i] = a[i] + b[i];
    return;
  }
  constexpr size_t kStep = kBlock / sizeof(T);
  alignas(64) T sum[kStep];
  for (size_t begin = 0; begin < count; begin += kStep) {
    const size_t length = std::min(kStep, count - begin);
    SumBlock(ranks, n, sum, begin, length);
    for (size_t r = 0; r < n; ++r) std::memcpy(ranks[r] + begin, sum, length * sizeof(T));
  }
}

template <typename T>
void Sum(T* const* ranks, size_t n, T* into, size_t count) {
  constexpr size_t kStep = kBlock / sizeof(T);
  alignas(64) T sum[kStep];
  for (size_t begin = 0; begin < count; begin += kStep) {
    const size_t length = std::min(kStep, count - begin);
    SumBlock(ranks, n, sum, begin, length);
    std::memcpy(into + begin, sum, length * sizeof(T));
  }
}

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

}  // namespace carole::collectives::CAROLE_SIMD_NAMESPACE
