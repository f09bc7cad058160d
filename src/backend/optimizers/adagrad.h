// Adagrad (Duchi et al. 2011, "Adaptive subgradient methods").
#pragma once

#include "src/backend/optimizers/optimizer.h"

namespace carole::optimizers {

struct Adagrad : OptimizerDefaults {
  static constexpr std::string_view kName = "adagrad";
  struct Options {
    double adagrad_initial_accumulator_value = 0.1;
  };
  static Settings SettingsOf(auto& o) {
    return {{"adagrad_initial_accumulator_value", "Initial value of adagrad's accumulators.",
             &o.own.adagrad_initial_accumulator_value, MoreThan(0)}};
  }
  static std::vector<Slot> SlotsOf(const auto& o) {
    return {{"Adagrad", o.own.adagrad_initial_accumulator_value}};
  }

  template <typename T, typename Build>
  struct Rule {
    static constexpr int kSlots = 1;
    constexpr Rule(const UpdateCoefficients& c, const auto&) : rate(T(c.learning_rate)) {}
    constexpr T operator()(T w, T g, T& a, T&) const {
      a += g * g;
      // In a layout's padding, a and g are 0 after a resume. 0/0 must not get into the weights.
      const T root = std::sqrt(a);
      return w - g * rate / (root == T(0) ? T(1) : root);
    }
    T rate;
  };
};

}  // namespace carole::optimizers
