// The weights and images of the golden tests. They are hashes of (name, index), so that any program
// can compute them.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/hash.h"
#include "src/core/rng.h"
#include "src/core/shape.h"

namespace carole::golden {

// Returns value number i of the sequence with this hash, uniform in [-1, 1).
inline double Uniform(uint64_t name_hash, uint64_t i) {
  return 2.0 * static_cast<double>(SplitMix64(name_hash + i) >> 11) * 0x1p-53 - 1.0;
}

// Returns the first `count` values of an input in the order (N,H,W,C).
inline std::vector<float> FormulaInput(std::string_view name, int64_t count) {
  const uint64_t hash = Fnv1a64(name);
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(Uniform(hash, i));
  return values;
}

// Returns the values of a variable, in the order of its TensorFlow shape. The last part of the name
// determines the distribution. Weights of layers are multiplied by kernel_scale.
inline std::vector<float> FormulaVariable(const std::string& name, const Shape& tf_shape,
                                          double kernel_scale) {
  const std::string last = name.substr(name.rfind('/') + 1);
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
