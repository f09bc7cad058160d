// LAMB (You et al. 2020, "Large batch optimization for deep learning") as timm has it. The update
// of a weight is r = m / (sqrt(v) + epsilon) + weight_decay * w, with the corrected moments m and
// v. The learning rate of a variable is that of the step times |w| / |r|. Variables without weight
// decay have the rate of the step.
#pragma once

#include "src/backend/optimizers/optimizer.h"

namespace carole::optimizers {

struct Lamb : OptimizerDefaults {
  static constexpr std::string_view kName = "lamb";
  struct Options {
    double lamb_beta1 = 0.9;
    double lamb_beta2 = 0.999;
    double lamb_epsilon = 1e-6;
    double lamb_max_grad_norm = 1;
    bool lamb_trust_clip = false;
    bool lamb_always_adapt = false;
  };
  static Settings SettingsOf(auto& o) {
    return {
        {"lamb_beta1", "Decay rate of lamb's first moment.", &o.own.lamb_beta1, kFraction},
        {"lamb_beta2", "Decay rate of lamb's second moment.", &o.own.lamb_beta2, kFraction},
        {"lamb_epsilon", "Epsilon of lamb.", &o.own.lamb_epsilon, MoreThan(0)},
        {"lamb_max_grad_norm",
         "Largest global norm of the gradient in lamb, in addition to the limit for all "
         "optimizers; 0: none.",
         &o.own.lamb_max_grad_norm, AtLeast(0)},
        {"lamb_trust_clip", "Limit lamb's trust ratios to 1.", &o.own.lamb_trust_clip},
        {"lamb_always_adapt", "Use lamb's trust ratios for variables without weight decay, too.",
         &o.own.lamb_always_adapt}};
  }
  static std::vector<Slot> SlotsOf(const auto&) { return {{"LAMB", 0}, {"LAMB_1", 0}}; }

  static constexpr bool kDecaysWeights = true;
  static constexpr Powers kPowers = Powers::kCount;
  static std::array<double, 2> DecaysOf(const auto& o) {
    return {o.own.lamb_beta1, o.own.lamb_beta2};
  }
  static double MaxGradientNorm(const auto& o) { return o.own.lamb_max_grad_norm; }

  static constexpr TrustNorm kTrustNorm = TrustNorm::kUpdate;
  static bool AdaptsAll(const auto& o) { return o.own.lamb_always_adapt; }
  static constexpr double TrustRatio(const auto& o, double /*weight_decay*/, double weight_norm,
                                     double update_norm) {
    if (!(weight_norm > 0 && update_norm > 0)) return 1;
    const double ratio = weight_norm / update_norm;
    return o.own.lamb_trust_clip && ratio > 1 ? 1 : ratio;
  }

  template <typename T, typename Build>
  struct Rule {  // slots: a is the mean, b the mean square
    static constexpr int kSlots = 2;
    constexpr Rule(const UpdateCoefficients& c, const auto& o)
        : rate(T(c.learning_rate)),
          weight_decay(T(c.weight_decay)),
          one_minus_beta1(T(1 - o.own.lamb_beta1)),
          one_minus_beta2(T(1 - o.own.lamb_beta2)),
          mean_correction(T(1 / (1 - c.decay_power))),
          root_correction(T(1 / std::sqrt(1 - c.decay2_power))),
          epsilon(T(o.own.lamb_epsilon)) {}
    constexpr T Direction(T w, T g, T& a, T& b) const {
      a += (g - a) * one_minus_beta1;
      b += (g * g - b) * one_minus_beta2;
      return Update(w, a, b);
    }
    constexpr T operator()(T w, T, T& a, T& b) const { return w - rate * Update(w, a, b); }
    constexpr T Update(T w, T a, T b) const {
      return a * mean_correction / (std::sqrt(b) * root_correction + epsilon) + weight_decay * w;
    }
    T rate, weight_decay, one_minus_beta1, one_minus_beta2, mean_correction, root_correction,
        epsilon;
  };
};

}  // namespace carole::optimizers
