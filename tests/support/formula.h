// Numbers by formula, which the recorded values of another framework were made with: u(name, i) is
// uniform in [-1, 1), by splitmix64 of the FNV-1a hash of the name plus i.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/hash.h"
#include "src/core/rng.h"
#include "src/core/shape.h"

namespace carole::testing {

inline double FormulaU(std::string_view name, uint64_t i) {
  return 2.0 * static_cast<double>(SplitMix64(Fnv1a64(name) + i) >> 11) * 0x1p-53 - 1.0;
}

inline std::vector<float> FormulaInput(std::string_view name, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(FormulaU(name, i));
  return values;
}

// First values of a variable, by the last part of its name; elements in TensorFlow's order.
inline std::vector<float> FormulaWeights(const std::string& name, const Shape& tf_shape,
                                         double kernel_scale = 1) {
  const std::string last = name.substr(name.rfind('/') + 1);
  double fan = 1;
  const bool depthwise = last == "depthwise_weights";
  const int counted = depthwise ? 2 : tf_shape.rank() - 1;
  for (int d = 0; d < counted; ++d) fan *= static_cast<double>(tf_shape[d]);
  std::vector<float> values(static_cast<size_t>(tf_shape.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    const double u = FormulaU(name, i);
    double value = 0.1 * u;  // biases, beta, moving_mean
    if (last.ends_with("weights")) value = u * std::sqrt(6.0 / fan) * kernel_scale;
    if (last == "gamma") value = 1.0 + 0.1 * u;
    if (last == "moving_variance") value = 1.0 + 0.5 * std::abs(u);
    values[i] = static_cast<float>(value);
  }
  return values;
}

}  // namespace carole::testing
