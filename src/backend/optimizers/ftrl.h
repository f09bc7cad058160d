// FTRL-Proximal (McMahan et al. 2013, "Ad click prediction: a view from the trenches", algorithm
// 1). With the usual power -0.5 it needs square roots instead of powers.
#pragma once

#include "src/backend/optimizers/optimizer.h"

namespace carole::optimizers {

struct Ftrl : OptimizerDefaults {
  static constexpr std::string_view kName = "ftrl";
  struct Options {
    double ftrl_learning_rate_power = -0.5;
    double ftrl_initial_accumulator_value = 0.1;
    double ftrl_l1 = 0;
    double ftrl_l2 = 0;
  };
  static Settings SettingsOf(auto& o) {
    return {{"ftrl_learning_rate_power", "Learning rate power of ftrl.",
             &o.own.ftrl_learning_rate_power, AtMost(0)},
            {"ftrl_initial_accumulator_value", "Initial value of ftrl's accumulators.",
             &o.own.ftrl_initial_accumulator_value, AtLeast(0)},
            {"ftrl_l1", "Factor of ftrl's L1 regularization.", &o.own.ftrl_l1, AtLeast(0)},
            {"ftrl_l2", "Factor of ftrl's L2 regularization.", &o.own.ftrl_l2, AtLeast(0)}};
  }
  static std::vector<Slot> SlotsOf(const auto& o) {
    return {{"Ftrl", o.own.ftrl_initial_accumulator_value}, {"Ftrl_1", 0}};
  }

  template <typename T, typename Build, bool kSquareRoot>
  struct RuleWithPower {  // slots: a is the sum of squared gradients, b the linear term
    static constexpr int kSlots = 2;
    constexpr RuleWithPower(const UpdateCoefficients& c, const auto& o)
        : rate(T(c.learning_rate)),
          exponent(-ToFloat32(o.own.ftrl_learning_rate_power)),
          l1(ToFloat32(o.own.ftrl_l1)),
          l2(T(2) * T(ToFloat32(o.own.ftrl_l2))) {}
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
  template <typename T, typename Build>
  using Rule = RuleWithPower<T, Build, true>;

  static bool UsesOtherRule(const auto& o) { return o.own.ftrl_learning_rate_power != -0.5; }
  template <typename T, typename Build>
  using OtherRule = RuleWithPower<T, Build, false>;
};

}  // namespace carole::optimizers
