// RMSProp (Tieleman & Hinton 2012, lecture 6.5), with momentum.
#pragma once

#include "src/backend/optimizers/optimizer.h"

namespace carole::optimizers {

struct RmsProp : OptimizerDefaults {
  static constexpr std::string_view kName = "rmsprop";
  struct Options {
    double rmsprop_momentum = 0.9;
    double rmsprop_decay = 0.9;
  };
  static Settings SettingsOf(auto& o) {
    return {{"rmsprop_momentum", "Momentum of rmsprop.", &o.own.rmsprop_momentum, kFraction},
            {"rmsprop_decay", "Decay rate of rmsprop.", &o.own.rmsprop_decay, kFraction},
            EpsilonSetting(o)};
  }
  static std::vector<Slot> SlotsOf(const auto&) { return {{"RMSProp", 1}, {"RMSProp_1", 0}}; }
  static KerasOptimizer KerasOf(const auto& o) {
    return {"RMSprop",
            {{"rho", o.own.rmsprop_decay},
             {"momentum", o.own.rmsprop_momentum},
             {"epsilon", o.opt_epsilon}}};
  }

  template <typename T, typename Build>
  struct Rule {  // slots: a is the mean square, b the momentum
    static constexpr int kSlots = 2;
    constexpr Rule(const UpdateCoefficients& c, const auto& o)
        : rate(T(c.learning_rate)),
          momentum(ToFloat32(o.own.rmsprop_momentum)),
          one_minus_decay(T(1) - T(ToFloat32(o.own.rmsprop_decay))),
          epsilon(ToFloat32(o.opt_epsilon)) {}
    constexpr T operator()(T w, T g, T& a, T& b) const {
      a += (g * g - a) * one_minus_decay;
      b = b * momentum + g * rate / std::sqrt(a + epsilon);
      return w - b;
    }
    T rate, momentum, one_minus_decay, epsilon;
  };
};

}  // namespace carole::optimizers
