// The element-wise arithmetic of the optimizers, for CPUs and GPUs. Every rule does the same
// operations in the same order as TensorFlow's.
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

// A rule is called with weight w, gradient g and the slots a and b. It updates the slots and
// returns the new weight. kSlots says how many slots it uses.
template <typename T>
struct Sgd {
  static constexpr int kSlots = 0;
  constexpr explicit Sgd(const UpdateCoefficients& c) : rate(T(c.learning_rate)) {}
  constexpr T operator()(T w, T g, T&, T&) const { return w - rate * g; }
  T rate;
};

template <typename T>
struct Momentum {
  static constexpr int kSlots = 1;
  constexpr explicit Momentum(const UpdateCoefficients& c)
      : rate(T(c.learning_rate)), momentum(T(c.momentum)) {}
  constexpr T operator()(T w, T g, T& a, T&) const {
    a = a * momentum + g;
    return w - rate * a;
  }
  T rate, momentum;
};

// Sutskever et al. 2013, "On the importance of initialization and momentum in deep learning".
template <typename T>
struct Nesterov {
  static constexpr int kSlots = 1;
  constexpr explicit Nesterov(const UpdateCoefficients& c)
      : rate(T(c.learning_rate)), momentum(T(c.momentum)) {}
  constexpr T operator()(T w, T g, T& a, T&) const {
    a = a * momentum + g;
    return w - (rate * g + rate * momentum * a);
  }
  T rate, momentum;
};

// You et al. 2017, "Large batch training of convolutional networks". The learning rate is the
// layer's own (see TrustRatio).
template <typename T>
struct Lars {
  static constexpr int kSlots = 1;
  constexpr explicit Lars(const UpdateCoefficients& c)
      : rate(T(c.learning_rate)), momentum(T(c.momentum)) {}
  constexpr T operator()(T w, T g, T& a, T&) const {
    a = a * momentum + g * rate;
    return w - a;
  }
  T rate, momentum;
};

// Tieleman & Hinton 2012, lecture 6.5.
template <typename T>
struct RmsProp {  // slots: a is the mean square, b the momentum
  static constexpr int kSlots = 2;
  constexpr explicit RmsProp(const UpdateCoefficients& c)
      : rate(T(c.learning_rate)),
        momentum(T(c.momentum)),
        one_minus_decay(T(1) - T(c.decay)),
        epsilon(T(c.epsilon)) {}
  constexpr T operator()(T w, T g, T& a, T& b) const {
    a += (g * g - a) * one_minus_decay;
    b = b * momentum + g * rate / std::sqrt(a + epsilon);
    return w - b;
  }
  T rate, momentum, one_minus_decay, epsilon;
};

// Kingma & Ba 2015, "Adam", in the more efficient form of section 2. epsilon is added after the
// square root and is not corrected for bias.
template <typename T>
struct Adam {  // slots: a is the mean, b the mean square
  static constexpr int kSlots = 2;
  constexpr explicit Adam(const UpdateCoefficients& c)
      : rate(T(c.learning_rate) * std::sqrt(T(1) - T(c.decay2_power)) / (T(1) - T(c.decay_power))),
        one_minus_decay(T(1) - T(c.decay)),
        one_minus_decay2(T(1) - T(c.decay2)),
        epsilon(T(c.epsilon)) {}
  constexpr T operator()(T w, T g, T& a, T& b) const {
    a += (g - a) * one_minus_decay;
    b += (g * g - b) * one_minus_decay2;
    return w - a * rate / (std::sqrt(b) + epsilon);
  }
  T rate, one_minus_decay, one_minus_decay2, epsilon;
};

// Duchi et al. 2011, "Adaptive subgradient methods".
template <typename T>
struct Adagrad {
  static constexpr int kSlots = 1;
  constexpr explicit Adagrad(const UpdateCoefficients& c) : rate(T(c.learning_rate)) {}
  constexpr T operator()(T w, T g, T& a, T&) const {
    a += g * g;
    // In a layout's padding, a and g are 0 after a resume. 0/0 must not get into the weights.
    const T root = std::sqrt(a);
    return w - g * rate / (root == T(0) ? T(1) : root);
  }
  T rate;
};

// Zeiler 2012, "ADADELTA", algorithm 1.
template <typename T>
struct Adadelta {  // slots: a is the mean square of the gradient, b that of the update
  static constexpr int kSlots = 2;
  constexpr explicit Adadelta(const UpdateCoefficients& c)
      : rate(T(c.learning_rate)),
        decay(T(c.decay)),
        one_minus_decay(T(1) - T(c.decay)),
        epsilon(T(c.epsilon)) {}
  constexpr T operator()(T w, T g, T& a, T& b) const {
    a = a * decay + g * g * one_minus_decay;
    const T update = std::sqrt(b + epsilon) / std::sqrt(a + epsilon) * g;
    b = b * decay + update * update * one_minus_decay;
    return w - rate * update;
  }
  T rate, decay, one_minus_decay, epsilon;
};

// McMahan et al. 2013, "Ad click prediction: a view from the trenches", algorithm 1.
template <typename T, bool kSquareRoot>
struct FtrlRule {  // slots: a is the sum of squared gradients, b the linear term
  static constexpr int kSlots = 2;
  constexpr explicit FtrlRule(const UpdateCoefficients& c)
      : rate(T(c.learning_rate)), exponent(T(-c.power)), l1(T(c.l1)), l2(T(2) * T(c.l2)) {}
  constexpr T Power(T n) const { return kSquareRoot ? std::sqrt(n) : std::pow(n, exponent); }
  constexpr T operator()(T w, T g, T& a, T& b) const {
    if (rate == T(0)) return w;  // warm-ups start at 0, by which the code below would divide
    const T sum = a + g * g;
    const T root = Power(sum);
    b += g - (root - Power(a)) / rate * w;
    a = sum;
    const T shrunk = std::copysign(l1, b) - b;
    return std::abs(b) > l1 ? shrunk / (root / rate + l2) : T(0);
  }
  T rate, exponent, l1, l2;
};
template <typename T>
using Ftrl = FtrlRule<T, true>;
template <typename T>
using FtrlPower = FtrlRule<T, false>;

// Calls f with the rule object and returns its result.
template <typename T, typename F>
constexpr auto Visit(UpdateRule rule, const UpdateCoefficients& c, F f) {
  switch (rule) {
    case UpdateRule::kSgd:
      return f(Sgd<T>(c));
    case UpdateRule::kMomentum:
      return f(Momentum<T>(c));
    case UpdateRule::kNesterov:
      return f(Nesterov<T>(c));
    case UpdateRule::kLars:
      return f(Lars<T>(c));
    case UpdateRule::kRmsProp:
      return f(RmsProp<T>(c));
    case UpdateRule::kAdam:
      return f(Adam<T>(c));
    case UpdateRule::kAdagrad:
      return f(Adagrad<T>(c));
    case UpdateRule::kAdadelta:
      return f(Adadelta<T>(c));
    case UpdateRule::kFtrl:
      return f(Ftrl<T>(c));
    case UpdateRule::kFtrlPower:
      break;
  }
  return f(FtrlPower<T>(c));
}

// Applies a rule to element i. g is its gradient, including weight decay.
template <typename Rule, typename T>
constexpr void Apply(const Rule& rule, T* w, T g, T* a, T* b, int64_t i) {
  [[maybe_unused]] T none{};
  if constexpr (Rule::kSlots == 0) {
    w[i] = rule(w[i], g, none, none);
  } else if constexpr (Rule::kSlots == 1) {
    T a_i = a[i];
    w[i] = rule(w[i], g, a_i, none);
    a[i] = a_i;
  } else {
    T a_i = a[i], b_i = b[i];
    w[i] = rule(w[i], g, a_i, b_i);
    a[i] = a_i;
    b[i] = b_i;
  }
}

// The factor for all gradients that tf.clip_by_global_norm applies; 1 if clip_norm is 0. T is
// double in this and the following functions.
template <typename T>
constexpr T GradientScale(T clip_norm, T gradient_squares) {
  if (clip_norm == 0) return 1;
  const T norm = std::sqrt(gradient_squares);
  return clip_norm / (norm > clip_norm ? norm : clip_norm);
}

// The trust ratio of LARS: the factor by which a regularized segment's learning rate differs from
// that of the step. It is 1 for segments whose weights or gradients are all zero.
template <typename T>
constexpr T TrustRatio(T trust, T weight_decay, T epsilon, T weight_norm, T gradient_norm) {
  if (!(weight_norm > 0 && gradient_norm > 0)) return 1;
  return trust * weight_norm / (gradient_norm + weight_decay * weight_norm + epsilon);
}

// Updates a moving average with a new value.
template <typename T>
constexpr T MovingAverage(T average, T value, T one_minus_decay) {
  return average - one_minus_decay * (average - value);
}

}  // namespace CAROLE_SIMD_NAMESPACE
}  // namespace carole::update_rules
