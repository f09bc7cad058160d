// Vector code for ranges of arenas in host memory. Each function runs on the caller's thread. The
// CPU and its vector width change no bit of the results.
#pragma once

#include <cstdint>

#include "src/backend/update.h"

namespace carole::host {

// The same range of all arenas. Each pointer points to the first element of the range.
template <typename T>
struct ArenaRange {
  T* weights = nullptr;
  const T* gradients = nullptr;
  T* slots[kMaxSlots] = {};
  int64_t count = 0;
  double gradient_scale = 1;
  // The rule gets the gradient gradient_scale * g + weight_decay * w. It is 0 for rules that decay
  // the weights themselves.
  double weight_decay = 0;
};

// Applies a rule to a range: writes weights and slots. If weight_decay is not 0, it returns the sum
// of squares of the weights before the update, else 0. The order of this sum does not depend on the
// CPU or its vector width. Denormal numbers are treated as 0.
template <typename T>
using UpdateFunction = double (*)(const ArenaRange<T>& elements,
                                  const UpdateCoefficients& coefficients,
                                  const OptimizerOptions& options);

// Returns the function of a rule (VisitRule()), compiled for this CPU. T is float or double.
template <typename T>
UpdateFunction<T> FindUpdate(int rule);

// Returns a function that updates the slots of a range (of at most UpdateBlock::kElements) with
// Rule::Direction() and returns the sum of squares of its results. The order of this sum does not
// depend on the CPU. Null if the rule has no Direction().
template <typename T>
UpdateFunction<T> FindDirection(int rule);

// Returns the sum of squares of `count` values. It is added in double, in an order that does not
// depend on the CPU. It is finite exactly if all values are finite.
double SumOfSquares(const float* values, int64_t count);
double SumOfSquares(const double* values, int64_t count);

// The functions of ArenaMath (src/backend/arena_math.h) for one range. T is float or double.
template <typename T>
void AddTo(T* to, const T* from, int64_t count);
template <typename T>
void ScaleBy(T factor, T* to, int64_t count);
template <typename T>
void MoveAverage(T one_minus_decay, T* to, const T* from, int64_t count);
uint64_t SumOfHashes(const float* values, int64_t count);

}  // namespace carole::host
