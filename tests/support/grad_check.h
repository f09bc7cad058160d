// Checks gradients against central differences, in double.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

namespace carole::testing {

struct GradCheckOptions {
  // Central differences have errors of O(step^2) and of rounding / step; both are near 1e-10 here.
  double step = 1e-5;
  double tolerance = 1e-6;    // relative to the largest element of the gradient
  size_t max_elements = 300;  // checked elements, evenly spread over x; each needs two calls of f
};

// f maps x to a scalar. For an operation whose result is a tensor, it is a random projection of
// that tensor. `gradient` is df/dx as the code under test computes it.
inline void ExpectGradient(const std::string& name,
                           const std::function<double(const std::vector<double>&)>& f,
                           std::vector<double> x, const std::vector<double>& gradient,
                           const GradCheckOptions& options = {}) {
  ASSERT_EQ(x.size(), gradient.size()) << name;
  double largest = 0;
  for (double g : gradient) largest = std::max(largest, std::abs(g));
  ASSERT_GT(largest, 0) << name << ": the gradient is zero everywhere, nothing is checked";
  const size_t stride = std::max<size_t>(1, x.size() / options.max_elements);
  for (size_t i = 0; i < x.size(); i += stride) {
    const double at = x[i];
    x[i] = at + options.step;
    const double above = f(x);
    x[i] = at - options.step;
    const double below = f(x);
    x[i] = at;
    const double difference = (above - below) / (2 * options.step);
    ASSERT_NEAR(gradient[i], difference, options.tolerance * largest)
        << name << ": element " << i << " of " << x.size();
  }
}

}  // namespace carole::testing
