// The element-wise arithmetic of the optimizers: one pass over a range of memory.
#pragma once

#include <cstdint>

namespace carole::optim {

inline constexpr int kMaxSlots = 2;

// One for each row of update_simd.cpp.
enum class Rule : uint8_t {
  kSgd,
  kMomentum,
  kNesterov,
  kLars,
  kRmsProp,
  kAdam,
  kAdagrad,
  kAdadelta,
  kFtrl,       // power -0.5: square roots instead of powers
  kFtrlPower,  // any power
};

// What a rule reads beside the elements; calculated with in the type of the elements.
struct Coefficients {
  double learning_rate = 0;
  double momentum = 0;
  double decay = 0, decay2 = 0;              // of averages of the gradient; decay2: of its square
  double decay_power = 0, decay2_power = 0;  // decay^t, decay2^t
  double epsilon = 0;
  double power = 0, l1 = 0, l2 = 0;  // ftrl's
};

// A range of the arenas; every pointer stands at the range's first element.
template <typename T>
struct Elements {
  T* weights = nullptr;
  const T* gradients = nullptr;
  T* slots[kMaxSlots] = {};
  int64_t count = 0;
  double gradient_scale = 1;
  double weight_decay = 0;  // the rule sees the gradient gradient_scale * g + weight_decay * w
};

// Writes weights and slots. Returns the sum of the squares of the weights before the update when
// weight_decay is not 0, else 0; added in an order that no CPU and no vector width changes.
// Denormals count as 0.
template <typename T>
using UpdateFunction = double (*)(const Elements<T>& elements, const Coefficients& coefficients);

// T is float or double.
template <typename T>
UpdateFunction<T> FindUpdate(Rule rule);

// The sum of the squares of `count` values, added in doubles and in an order that no CPU changes.
// Not finite exactly when a value is not.
double SumOfSquares(const float* values, int64_t count);
double SumOfSquares(const double* values, int64_t count);

}  // namespace carole::optim
