// Adam (Kingma & Ba 2015) in the more efficient form of section 2, as TensorFlow has it: epsilon is
// added after the square root and is not corrected for bias.
#pragma once

#include "src/backend/optimizers/optimizer.h"

namespace carole::optimizers {

struct Adam : OptimizerDefaults {
  static constexpr std::string_view kName = "adam";
  struct Options {
    double adam_beta1 = 0.9;
    double adam_beta2 = 0.999;
  };
  static Settings SettingsOf(auto& o) {
    return {{"adam_beta1", "Decay rate of adam's first moment.", &o.own.adam_beta1, kFraction},
            {"adam_beta2", "Decay rate of adam's second moment.", &o.own.adam_beta2, kFraction},
            EpsilonSetting(o)};
  }
  static std::vector<Slot> SlotsOf(const auto&) { return {{"Adam", 0}, {"Adam_1", 0}}; }
  static KerasOptimizer KerasOf(const auto& o) {
    return {
        "Adam",
        {{"beta_1", o.own.adam_beta1}, {"beta_2", o.own.adam_beta2}, {"epsilon", o.opt_epsilon}}};
  }

  static constexpr Powers kPowers = Powers::kProducts;
  static std::array<double, 2> DecaysOf(const auto& o) {
    return {o.own.adam_beta1, o.own.adam_beta2};
  }

  template <typename T, typename Build>
  struct Rule {  // slots: a is the mean, b the mean square
    static constexpr int kSlots = 2;
    constexpr Rule(const UpdateCoefficients& c, const auto& o)
        : rate(T(c.learning_rate) * std::sqrt(T(1) - T(c.decay2_power)) /
               (T(1) - T(c.decay_power))),
          one_minus_decay(T(1) - T(ToFloat32(o.own.adam_beta1))),
          one_minus_decay2(T(1) - T(ToFloat32(o.own.adam_beta2))),
          epsilon(ToFloat32(o.opt_epsilon)) {}
    constexpr T operator()(T w, T g, T& a, T& b) const {
      a += (g - a) * one_minus_decay;
      b += (g * g - b) * one_minus_decay2;
      return w - a * rate / (std::sqrt(b) + epsilon);
    }
    T rate, one_minus_decay, one_minus_decay2, epsilon;
  };
};

}  // namespace carole::optimizers
