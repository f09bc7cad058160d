// Applies the optimizers' rules (optimizers/) to elements of arenas, on CPUs and GPUs.
//
// CPU sources are compiled once for each x86-64 level (carole_simd_source in CMake). Each of these
// builds uses its own namespace, so that the linker does not mix them up.
#pragma once

#include <cmath>

#include "src/backend/update.h"

#ifndef CAROLE_SIMD_NAMESPACE
#define CAROLE_SIMD_NAMESPACE plain
#endif

namespace carole::update_rules {
inline namespace CAROLE_SIMD_NAMESPACE {

// The type that stands for this build in Rule<T, Build>.
struct Build {};

// Calls f(a, b) with the slots of element i, stores them again, and returns the result. kSlots: how
// many slots there are.
template <int kSlots, typename T, typename F>
constexpr T OnSlots(T* a, T* b, int64_t i, const F& f) {
  [[maybe_unused]] T none{};
  if constexpr (kSlots == 0) {
    return f(none, none);
  } else if constexpr (kSlots == 1) {
    T a_i = a[i];
    const T result = f(a_i, none);
    a[i] = a_i;
    return result;
  } else {
    T a_i = a[i], b_i = b[i];
    const T result = f(a_i, b_i);
    a[i] = a_i;
    b[i] = b_i;
    return result;
  }
}

// Returns the new weight of element i. g is its gradient, including weight decay that is not the
// rule's own.
template <typename Rule, typename T>
constexpr T Apply(const Rule& rule, T w, T g, T* a, T* b, int64_t i) {
  return OnSlots<Rule::kSlots>(a, b, i, [=](T& x, T& y) { return rule(w, g, x, y); });
}

// The same for Rule::Direction().
template <typename Rule, typename T>
constexpr T Direction(const Rule& rule, T w, T g, T* a, T* b, int64_t i) {
  return OnSlots<Rule::kSlots>(a, b, i, [=](T& x, T& y) { return rule.Direction(w, g, x, y); });
}

// The factor for all gradients that tf.clip_by_global_norm applies; 1 if clip_norm is 0. T is
// double here.
template <typename T>
constexpr T GradientScale(T clip_norm, T gradient_squares) {
  if (clip_norm == 0) return 1;
  const T norm = std::sqrt(gradient_squares);
  return clip_norm / (norm > clip_norm ? norm : clip_norm);
}

// Updates a moving average with a new value.
template <typename T>
constexpr T MovingAverage(T average, T value, T one_minus_decay) {
  return average - one_minus_decay * (average - value);
}

}  // namespace CAROLE_SIMD_NAMESPACE
}  // namespace carole::update_rules
