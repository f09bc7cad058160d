// One pass of an optimizer's rule over a range of the host's memory.
#pragma once

#include <cstdint>

#include "src/backend/update.h"

namespace carole::optim {

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
using UpdateFunction = double (*)(const Elements<T>& elements,
                                  const UpdateCoefficients& coefficients);

// T is float or double.
template <typename T>
UpdateFunction<T> FindUpdate(UpdateRule rule);

// The sum of the squares of `count` values, added in doubles and in an order that no CPU changes.
// Not finite exactly when a value is not.
double SumOfSquares(const float* values, int64_t count);
double SumOfSquares(const double* values, int64_t count);

}  // namespace carole::optim
