// Gradient descent with momentum, or with Nesterov's momentum in the form of Sutskever et al. 2013,
// "On the importance of initialization and momentum in deep learning".
#pragma once

#include "src/backend/optimizers/optimizer.h"

namespace carole::optimizers {

struct Momentum : OptimizerDefaults {
  static constexpr std::string_view kName = "momentum";
  struct Options {
    bool nesterov = false;
  };
  static Settings SettingsOf(auto& o) {
    return {MomentumSetting(o),
            {"nesterov", "Use Nesterov momentum in the optimizer momentum.", &o.own.nesterov}};
  }
  static std::vector<Slot> SlotsOf(const auto&) { return {{"Momentum", 0}}; }
  static KerasOptimizer KerasOf(const auto& o) {
    return {"SGD", {{"momentum", o.momentum}, {"nesterov", o.own.nesterov}}};
  }

  template <typename T, typename Build>
  struct Rule {
    static constexpr int kSlots = 1;
    constexpr Rule(const UpdateCoefficients& c, const auto& o)
        : rate(T(c.learning_rate)), momentum(ToFloat32(o.momentum)) {}
    constexpr T operator()(T w, T g, T& a, T&) const {
      a = a * momentum + g;
      return w - rate * a;
    }
    T rate, momentum;
  };

  static bool UsesOtherRule(const auto& o) { return o.own.nesterov; }
  template <typename T, typename Build>
  struct OtherRule {
    static constexpr int kSlots = 1;
    constexpr OtherRule(const UpdateCoefficients& c, const auto& o)
        : rate(T(c.learning_rate)), momentum(ToFloat32(o.momentum)) {}
    constexpr T operator()(T w, T g, T& a, T&) const {
      a = a * momentum + g;
      return w - (rate * g + rate * momentum * a);
    }
    T rate, momentum;
  };
};

}  // namespace carole::optimizers
