// Stochastic gradient descent without momentum.
#pragma once

#include "src/backend/optimizers/optimizer.h"

namespace carole::optimizers {

struct Sgd : OptimizerDefaults {
  static constexpr std::string_view kName = "sgd";
  struct Options {};
  static Settings SettingsOf(auto&) { return {}; }
  static std::vector<Slot> SlotsOf(const auto&) { return {}; }
  static KerasOptimizer KerasOf(const auto&) {
    return {"SGD", {{"momentum", 0.0}, {"nesterov", false}}};
  }

  template <typename T, typename Build>
  struct Rule {
    static constexpr int kSlots = 0;
    constexpr Rule(const UpdateCoefficients& c, const auto&) : rate(T(c.learning_rate)) {}
    constexpr T operator()(T w, T g, T&, T&) const { return w - rate * g; }
    T rate;
  };
};

}  // namespace carole::optimizers
