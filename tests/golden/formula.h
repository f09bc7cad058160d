// Weights and images that every program can make for itself: a hash of (name, index).
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

#include "src/core/hash.h"
#include "src/core/rng.h"
#include "src/core/shape.h"

namespace carole::golden {

// Uniform in [-1, 1).
inline double Uniform(uint64_t name_hash, uint64_t i) {
  return 2.0 * static_cast<double>(SplitMix64(name_hash + i) >> 11) * 0x1p-53 - 1.0;
}

// The first `count` values of an input, C order (N,H,W,C).
inline std::vector<float> FormulaInput(std::string_view name, int64_t count) {
  const uint64_t hash = Fnv1a64(name);
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(Uniform(hash, i));
  return values;
}

// A variable's values in C order of its TensorFlow shape; the last part of the name decides the
// distribution. `kernel_scale` multiplies kernels.
inline std::vector<float> FormulaVariable(std::string_view name, const Shape& tf_shape,
                                          double kernel_scale) {
  const std::string_view last = name.substr(name.rfind('/') + 1);
  double factor = 0.1, scale = 1, offset = 0;
  bool absolute = false;
  if (last == "weights" || last == "pointwise_weights" || last == "kernel") {
    const int64_t outputs = tf_shape[tf_shape.rank() - 1];
    factor = std::sqrt(6.0 / static_cast<double>(tf_shape.size() / outputs));
    scale = kernel_scale;
  } else if (last == "depthwise_weights") {
    factor = std::sqrt(6.0 / static_cast<double>(tf_shape[0] * tf_shape[1]));
    scale = kernel_scale;
  } else if (last == "gamma") {
    offset = 1;
  } else if (last == "moving_variance") {
    offset = 1;
    factor = 0.5;
    absolute = true;
  }
  const uint64_t hash = Fnv1a64(name);
  std::vector<float> values(static_cast<size_t>(tf_shape.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    const double u = Uniform(hash, i);
    values[i] = static_cast<float>(offset + (absolute ? std::abs(u) : u) * factor * scale);
  }
  return values;
}

}  // namespace carole::golden
