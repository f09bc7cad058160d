// LARS (You et al. 2017, "Large batch training of convolutional networks"). Each regularized
// variable has its own learning rate: that of the step times
// lars_eta * |w| / (|g| + weight_decay * |w| + lars_epsilon).
#pragma once

#include "src/backend/optimizers/optimizer.h"

namespace carole::optimizers {

struct Lars : OptimizerDefaults {
  static constexpr std::string_view kName = "lars";
  struct Options {
    double lars_eta = 0.001;
    double lars_epsilon = 0;
  };
  static Settings SettingsOf(auto& o) {
    return {MomentumSetting(o),
            {"lars_eta", "Trust coefficient of lars.", &o.own.lars_eta, MoreThan(0)},
            {"lars_epsilon", "Epsilon of lars.", &o.own.lars_epsilon, AtLeast(0)}};
  }
  static std::vector<Slot> SlotsOf(const auto&) { return {{"Momentum", 0}}; }

  static constexpr TrustNorm kTrustNorm = TrustNorm::kGradient;
  static constexpr double TrustRatio(const auto& o, double weight_decay, double weight_norm,
                                     double gradient_norm) {
    if (!(weight_norm > 0 && gradient_norm > 0)) return 1;
    return o.own.lars_eta * weight_norm /
           (gradient_norm + weight_decay * weight_norm + ToFloat32(o.own.lars_epsilon));
  }

  template <typename T, typename Build>
  struct Rule {
    static constexpr int kSlots = 1;
    constexpr Rule(const UpdateCoefficients& c, const auto& o)
        : rate(T(c.learning_rate)), momentum(ToFloat32(o.momentum)) {}
    constexpr T operator()(T w, T g, T& a, T&) const {
      a = a * momentum + g * rate;
      return w - a;
    }
    T rate, momentum;
  };
};

}  // namespace carole::optimizers
