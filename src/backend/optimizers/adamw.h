// AdamW (Loshchilov & Hutter 2019, "Decoupled weight decay regularization") as PyTorch has it:
// the weights are multiplied by 1 - learning_rate * weight_decay first, and epsilon is added to the
// corrected root.
#pragma once

#include "src/backend/optimizers/optimizer.h"

namespace carole::optimizers {

struct AdamW : OptimizerDefaults {
  static constexpr std::string_view kName = "adamw";
  struct Options {
    double adamw_beta1 = 0.9;
    double adamw_beta2 = 0.999;
    double adamw_epsilon = 1e-8;
  };
  static Settings SettingsOf(auto& o) {
    return {{"adamw_beta1", "Decay rate of adamw's first moment.", &o.own.adamw_beta1, kFraction},
            {"adamw_beta2", "Decay rate of adamw's second moment.", &o.own.adamw_beta2, kFraction},
            {"adamw_epsilon", "Epsilon of adamw.", &o.own.adamw_epsilon, MoreThan(0)}};
  }
  static std::vector<Slot> SlotsOf(const auto&) { return {{"AdamW", 0}, {"AdamW_1", 0}}; }

  static constexpr bool kDecaysWeights = true;
  static constexpr Powers kPowers = Powers::kCount;
  static std::array<double, 2> DecaysOf(const auto& o) {
    return {o.own.adamw_beta1, o.own.adamw_beta2};
  }

  template <typename T, typename Build>
  struct Rule {  // slots: a is the mean, b the mean square
    static constexpr int kSlots = 2;
    constexpr Rule(const UpdateCoefficients& c, const auto& o)
        : rate(T(c.learning_rate / (1 - c.decay_power))),
          kept(T(1 - c.learning_rate * c.weight_decay)),
          one_minus_beta1(T(1 - o.own.adamw_beta1)),
          one_minus_beta2(T(1 - o.own.adamw_beta2)),
          root_correction(T(1 / std::sqrt(1 - c.decay2_power))),
          epsilon(T(o.own.adamw_epsilon)) {}
    constexpr T operator()(T w, T g, T& a, T& b) const {
      a += (g - a) * one_minus_beta1;
      b += (g * g - b) * one_minus_beta2;
      return w * kept - rate * a / (std::sqrt(b) * root_correction + epsilon);
    }
    T rate, kept, one_minus_beta1, one_minus_beta2, root_correction, epsilon;
  };
};

}  // namespace carole::optimizers
