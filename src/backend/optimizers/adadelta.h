// Adadelta (Zeiler 2012, "ADADELTA: an adaptive learning rate method", algorithm 1).
#pragma once

#include "src/backend/optimizers/optimizer.h"

namespace carole::optimizers {

struct Adadelta : OptimizerDefaults {
  static constexpr std::string_view kName = "adadelta";
  struct Options {
    double adadelta_rho = 0.95;
  };
  static Settings SettingsOf(auto& o) {
    return {{"adadelta_rho", "Decay rate of adadelta.", &o.own.adadelta_rho, kFraction},
            EpsilonSetting(o)};
  }
  static std::vector<Slot> SlotsOf(const auto&) { return {{"Adadelta", 0}, {"Adadelta_1", 0}}; }

  template <typename T, typename Build>
  struct Rule {  // slots: a is the mean square of the gradient, b that of the update
    static constexpr int kSlots = 2;
    constexpr Rule(const UpdateCoefficients& c, const auto& o)
        : rate(T(c.learning_rate)),
          decay(ToFloat32(o.own.adadelta_rho)),
          one_minus_decay(T(1) - decay),
          epsilon(ToFloat32(o.opt_epsilon)) {}
    constexpr T operator()(T w, T g, T& a, T& b) const {
      a = a * decay + g * g * one_minus_decay;
      const T update = std::sqrt(b + epsilon) / std::sqrt(a + epsilon) * g;
      b = b * decay + update * update * one_minus_decay;
      return w - rate * update;
    }
    T rate, decay, one_minus_decay, epsilon;
  };
};

}  // namespace carole::optimizers
