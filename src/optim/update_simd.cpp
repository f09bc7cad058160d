// Compiled once for each x86-64 level (carole_simd_source); the loops are plain so that the
// compiler vectorises them. Every rule is TensorFlow's, operation by operation.
#include <xmmintrin.h>

#include <cmath>

#include "src/optim/update.h"

namespace carole::optim::CAROLE_SIMD_NAMESPACE {
namespace {

// A rule takes weight and gradient, changes its slots a and b, and returns the new weight.
template <typename T>
struct Sgd {
  static constexpr int kSlots = 0;
  explicit Sgd(const Coefficients& c) : rate(T(c.learning_rate)) {}
  T operator()(T w, T g, T&, T&) const { return w - rate * g; }
  T rate;
};

template <typename T>
struct Momentum {
  static constexpr int kSlots = 1;
  explicit Momentum(const Coefficients& c) : rate(T(c.learning_rate)), momentum(T(c.momentum)) {}
  T operator()(T w, T g, T& a, T&) const {
    a = a * momentum + g;
    return w - rate * a;
  }
  T rate, momentum;
};

template <typename T>
struct Nesterov {
  static constexpr int kSlots = 1;
  explicit Nesterov(const Coefficients& c) : rate(T(c.learning_rate)), momentum(T(c.momentum)) {}
  T operator()(T w, T g, T& a, T&) const {
    a = a * momentum + g;
    return w - (rate * g + rate * momentum * a);
  }
  T rate, momentum;
};

// You et al. 2017, "Large batch training of convolutional networks"; the rate is the layer's own.
template <typename T>
struct Lars {
  static constexpr int kSlots = 1;
  explicit Lars(const Coefficients& c) : rate(T(c.learning_rate)), momentum(T(c.momentum)) {}
  T operator()(T w, T g, T& a, T&) const {
    a = a * momentum + g * rate;
    return w - a;
  }
  T rate, momentum;
};

template <typename T>
struct RmsProp {  // a: mean square, b: momentum
  static constexpr int kSlots = 2;
  explicit RmsProp(const Coefficients& c)
      : rate(T(c.learning_rate)),
        momentum(T(c.momentum)),
        rest(T(1) - T(c.decay)),
        epsilon(T(c.epsilon)) {}
  T operator()(T w, T g, T& a, T& b) const {
    a += (g * g - a) * rest;
    b = b * momentum + g * rate / std::sqrt(a + epsilon);
    return w - b;
  }
  T rate, momentum, rest, epsilon;
};

template <typename T>
struct Adam {  // a: mean, b: mean square; epsilon outside the root and not corrected for bias
  static constexpr int kSlots = 2;
  explicit Adam(const Coefficients& c)
      : rate(T(c.learning_rate) * std::sqrt(T(1) - T(c.decay2_power)) / (T(1) - T(c.decay_power))),
        rest(T(1) - T(c.decay)),
        rest2(T(1) - T(c.decay2)),
        epsilon(T(c.epsilon)) {}
  T operator()(T w, T g, T& a, T& b) const {
    a += (g - a) * rest;
    b += (g * g - b) * rest2;
    return w - a * rate / (std::sqrt(b) + epsilon);
  }
  T rate, rest, rest2, epsilon;
};

template <typename T>
struct Adagrad {
  static constexpr int kSlots = 1;
  explicit Adagrad(const Coefficients& c) : rate(T(c.learning_rate)) {}
  T operator()(T w, T g, T& a, T&) const {
    a += g * g;
    // After a resume both are 0 in a layout's padding, and 0/0 must not get into the weights.
    const T root = std::sqrt(a);
    return w - g * rate / (root == T(0) ? T(1) : root);
  }
  T rate;
};

template <typename T>
struct Adadelta {  // a: mean square of the gradient, b: of the update
  static constexpr int kSlots = 2;
  explicit Adadelta(const Coefficients& c)
      : rate(T(c.learning_rate)),
        decay(T(c.decay)),
        rest(T(1) - T(c.decay)),
        epsilon(T(c.epsilon)) {}
  T operator()(T w, T g, T& a, T& b) const {
    a = a * decay + g * g * rest;
    const T update = std::sqrt(b + epsilon) / std::sqrt(a + epsilon) * g;
    b = b * decay + update * update * rest;
    return w - rate * update;
  }
  T rate, decay, rest, epsilon;
};

// McMahan et al. 2013, "Ad click prediction: a view from the trenches", algorithm 1.
template <typename T, bool kSquareRoot>
struct FtrlRule {  // a: sum of squares, b: the linear term
  static constexpr int kSlots = 2;
  explicit FtrlRule(const Coefficients& c)
      : rate(T(c.learning_rate)), exponent(T(-c.power)), l1(T(c.l1)), l2(T(2) * T(c.l2)) {}
  T Power(T n) const { return kSquareRoot ? std::sqrt(n) : std::pow(n, exponent); }
  T operator()(T w, T g, T& a, T& b) const {
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

// Momentum of a weight that gets no gradient any more fades into denormals, which cost a hundred
// cycles each.
class FlushDenormals {
 public:
  FlushDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
};

// In as many running sums of type Sum as there are lanes, whatever the vector width.
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

template <template <typename> class Rule, typename T>
void Sweep(const Elements<T>& e, const Rule<T>& rule) {
  T* w = e.weights;
  const T* g = e.gradients;
  T* a = e.slots[0];
  T* b = e.slots[1];
  const T scale = T(e.gradient_scale);
  const T weight_decay = T(e.weight_decay);
  [[maybe_unused]] T none{};
#pragma omp simd
  for (int64_t i = 0; i < e.count; ++i) {
    const T gradient = scale * g[i] + weight_decay * w[i];
    if constexpr (Rule<T>::kSlots == 0) {
      w[i] = rule(w[i], gradient, none, none);
    } else if constexpr (Rule<T>::kSlots == 1) {
      T a_i = a[i];
      w[i] = rule(w[i], gradient, a_i, none);
      a[i] = a_i;
    } else {
      T a_i = a[i], b_i = b[i];
      w[i] = rule(w[i], gradient, a_i, b_i);
      a[i] = a_i;
      b[i] = b_i;
    }
  }
}

template <template <typename> class Rule, typename T>
double Update(const Elements<T>& elements, const Coefficients& coefficients) {
  const FlushDenormals flush;
  const Rule<T> rule(coefficients);
  // The range is a block that fits into the first cache: reading it twice costs one pass over
  // memory.
  const double squares = elements.weight_decay == 0
                             ? 0
                             : SumInLanes<T, 64 / sizeof(T)>(elements.weights, elements.count);
  Sweep<Rule, T>(elements, rule);
  return squares;
}

template <typename T>
UpdateFunction<T> Find(Rule rule) {
  switch (rule) {
    case Rule::kSgd:
      return Update<Sgd, T>;
    case Rule::kMomentum:
      return Update<Momentum, T>;
    case Rule::kNesterov:
      return Update<Nesterov, T>;
    case Rule::kLars:
      return Update<Lars, T>;
    case Rule::kRmsProp:
      return Update<RmsProp, T>;
    case Rule::kAdam:
      return Update<Adam, T>;
    case Rule::kAdagrad:
      return Update<Adagrad, T>;
    case Rule::kAdadelta:
      return Update<Adadelta, T>;
    case Rule::kFtrl:
      return Update<Ftrl, T>;
    case Rule::kFtrlPower:
      return Update<FtrlPower, T>;
  }
  return nullptr;
}

}  // namespace

UpdateFunction<float> FindFloat(Rule rule) { return Find<float>(rule); }
UpdateFunction<double> FindDouble(Rule rule) { return Find<double>(rule); }
double Squares(const float* x, int64_t n) { return SumInLanes<double, 32>(x, n); }
double Squares(const double* x, int64_t n) { return SumInLanes<double, 32>(x, n); }

}  // namespace carole::optim::CAROLE_SIMD_NAMESPACE
