// Update rules and other arithmetic on arenas as vector code. CMake compiles this file once for
// each x86-64 level (carole_simd_sources). The loops are simple, so that the compiler vectorizes
// them. updater.cpp explains the algorithm.
#include <xmmintrin.h>

#include <bit>

#include "src/backend/arena_math.h"
#include "src/backend/host/vector_math.h"
#include "src/backend/update_rules.h"

namespace carole::host::CAROLE_SIMD_NAMESPACE {
namespace {

// Makes the CPU treat denormal numbers as 0 while this object exists. If a weight gets no gradient
// any more, its momentum decays to denormal numbers, and each of these costs a hundred cycles.
class FlushDenormals {
 public:
  // 0x8040: flush to zero (results) and denormals are zero (operands).
  FlushDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
};

// Returns the sum of squares. Element i is added to running sum number i % kLanes, of type Sum;
// these sums are added at the end. The order is the same for all vector widths.
template <typename Sum, int64_t kLanes, typename T>
double SumInLanes(const T* x, int64_t count) {
  Sum sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
#pragma omp simd
    for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += Sum(x[i + lane]) * Sum(x[i + lane]);
  }
  double sum = 0;
  for (; i < count; ++i) sum += static_cast<double>(x[i]) * x[i];
  for (Sum lane : sums) sum += lane;
  return sum;
}

template <typename Rule, typename T>
double Update(const ArenaRange<T>& e, const UpdateCoefficients& coefficients) {
  const FlushDenormals flush;
  const Rule rule(coefficients);
  // The range is a block that fits into the L1 cache, so reading it twice costs one pass over
  // memory.
  const double squares =
      e.weight_decay == 0 ? 0 : SumInLanes<T, 64 / sizeof(T)>(e.weights, e.count);
  T* w = e.weights;
  const T* g = e.gradients;
  T* a = e.slots[0];
  T* b = e.slots[1];
  const T scale = T(e.gradient_scale);
  const T weight_decay = T(e.weight_decay);
#pragma omp simd
  for (int64_t i = 0; i < e.count; ++i)
    update_rules::Apply(rule, w, scale * g[i] + weight_decay * w[i], a, b, i);
  return squares;
}

template <typename T>
UpdateFunction<T> Find(UpdateRule rule) {
  return update_rules::Visit<T>(rule, {},
                                [](auto r) -> UpdateFunction<T> { return Update<decltype(r), T>; });
}

template <typename T>
void AddValues(T* to, const T* from, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] += from[i];
}

template <typename T>
void ScaleValues(T factor, T* to, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] *= factor;
}

template <typename T>
void MoveAverages(T rest, T* to, const T* from, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] = update_rules::MovingAverage(to[i], from[i], rest);
}

}  // namespace

UpdateFunction<float> FindFloat(UpdateRule rule) { return Find<float>(rule); }
UpdateFunction<double> FindDouble(UpdateRule rule) { return Find<double>(rule); }
double Squares(const float* x, int64_t n) { return SumInLanes<double, 32>(x, n); }
double Squares(const double* x, int64_t n) { return SumInLanes<double, 32>(x, n); }

void Add(float* to, const float* from, int64_t n) { AddValues(to, from, n); }
void Add(double* to, const double* from, int64_t n) { AddValues(to, from, n); }
void Scale(float factor, float* to, int64_t n) { ScaleValues(factor, to, n); }
void Scale(double factor, double* to, int64_t n) { ScaleValues(factor, to, n); }
void Average(float rest, float* to, const float* from, int64_t n) {
  MoveAverages(rest, to, from, n);
}
void Average(double rest, double* to, const double* from, int64_t n) {
  MoveAverages(rest, to, from, n);
}

uint64_t Hashes(const float* values, int64_t n) {
  uint64_t sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += HashOfValue(std::bit_cast<uint32_t>(values[i]), i);
  return sum;
}

}  // namespace carole::host::CAROLE_SIMD_NAMESPACE
