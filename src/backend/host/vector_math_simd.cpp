// Update rules and other arithmetic on arenas as vector code. CMake compiles this file once for
// each x86-64 level (carole_simd_sources). The loops are simple, so that the compiler vectorizes
// them. updater.cpp explains the algorithm.
#include <xmmintrin.h>

#include <bit>

#include "src/backend/arena_math.h"
#include "src/backend/host/vector_math.h"
#include "src/backend/optimizers/optimizers.h"
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
double Update(const ArenaRange<T>& e, const UpdateCoefficients& coefficients,
              const OptimizerOptions& options) {
  const FlushDenormals flush;
  const Rule rule(coefficients, options);
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
    w[i] = update_rules::Apply(rule, w[i], scale * g[i] + weight_decay * w[i], a, b, i);
  return squares;
}

template <typename Rule, typename T>
double Direction(const ArenaRange<T>& e, const UpdateCoefficients& coefficients,
                 const OptimizerOptions& options) {
  const FlushDenormals flush;
  const Rule rule(coefficients, options);
  const T* w = e.weights;
  const T* g = e.gradients;
  T* a = e.slots[0];
  T* b = e.slots[1];
  const T scale = T(e.gradient_scale);
  T directions[UpdateBlock::kElements];
#pragma omp simd
  for (int64_t i = 0; i < e.count; ++i)
    directions[i] = update_rules::Direction(rule, w[i], scale * g[i], a, b, i);
  return SumInLanes<double, 32>(directions, e.count);
}

template <typename T>
UpdateFunction<T> Find(int rule) {
  return VisitRule<T, update_rules::Build>(
      rule,
      []<typename Optimizer, typename Rule>() -> UpdateFunction<T> { return Update<Rule, T>; });
}

template <typename T>
UpdateFunction<T> FindItsDirection(int rule) {
  return VisitRule<T, update_rules::Build>(
      rule, []<typename Optimizer, typename Rule>() -> UpdateFunction<T> {
        if constexpr (Optimizer::kTrustNorm == TrustNorm::kUpdate) {
          return Direction<Rule, T>;
        } else {
          return nullptr;
        }
      });
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

UpdateFunction<float> FindFloat(int rule) { return Find<float>(rule); }
UpdateFunction<double> FindDouble(int rule) { return Find<double>(rule); }
UpdateFunction<float> FindFloatDirection(int rule) { return FindItsDirection<float>(rule); }
UpdateFunction<double> FindDoubleDirection(int rule) { return FindItsDirection<double>(rule); }
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
