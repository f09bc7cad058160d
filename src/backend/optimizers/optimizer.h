// What an optimizer consists of. Each optimizer is a struct in a file of this folder. Everything
// else follows from the struct: the flags of its settings, its slots in checkpoints, and the code
// that updates weights on CPUs and GPUs. It has these members:
//
//   kName                 its name, by which users select it
//   Options               its own settings, with defaults (empty if it has none)
//   SettingsOf(o)         all settings that it reads, its own and shared ones
//   SlotsOf(o)            its slots
//   Rule<T, Build>        its arithmetic
//
// `o` is an OptimizerOptions (optimizers.h): the shared settings and, in o.own, those of all
// optimizers. The struct inherits defaults for what few optimizers need from OptimizerDefaults.
//
// A rule is made from the numbers of a step, `Rule(const UpdateCoefficients&, const auto& o)`, and
// is called for each weight w with its gradient g and slots a and b. It updates the slots and
// returns the new weight. kSlots says how many slots it uses. T is float or double. Build is a type
// that differs between builds of one source file for several CPUs, so that the linker does not mix
// them up.
//
// Weights of a layout's padding and their gradients are 0. A rule must keep them 0, even if the
// slots are 0, too.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "src/core/settings.h"

namespace carole {

inline constexpr int kMaxSlots = 2;  // optimizer slots (state values) for each weight

// The numbers that change from step to step.
struct UpdateCoefficients {
  double learning_rate = 0;                  // of the variable
  double gradient_scale = 1;                 // gradients are multiplied by it before anything else
  double decay_power = 0, decay2_power = 0;  // decay^t and decay2^t (see Powers), t counts from 1
  double weight_decay = 0;                   // of the variable; only if kDecaysWeights
};

// A slot is one state value for each weight, such as its momentum. In checkpoints the slot of a
// variable is called VARIABLE/<name>.
struct Slot {
  std::string name;
  double initial = 0;  // initial value of all elements
};

// How decay^t and decay2^t are kept, where t is the number of steps.
enum class Powers {
  kNone,
  kProducts,  // as TensorFlow does: products in float32, in checkpoints beta1_power, beta2_power
  kCount,     // computed from t, which is update_count in checkpoints
};

// What the trust ratio of a variable depends on, in addition to the norm of its weights.
enum class TrustNorm {
  kNone,      // there is no trust ratio
  kGradient,  // the norm of its gradient
  kUpdate,    // the norm of Rule::Direction()
};

// The same optimizer in Keras.
struct KerasOptimizer {
  std::string class_name;  // empty if there is none
  std::vector<std::pair<std::string, std::variant<double, bool>>> config = {};
};

struct OptimizerDefaults {
  // Whether the rule applies weight decay itself. If not, it gets the gradient
  // gradient_scale * g + weight_decay * w, and weight decay is part of the loss.
  static constexpr bool kDecaysWeights = false;

  static constexpr Powers kPowers = Powers::kNone;
  // decay and decay2.
  static std::array<double, 2> DecaysOf(const auto&) { return {}; }

  // The trust ratio is a factor of a variable's learning rate. It is 1 for variables without weight
  // decay, unless AdaptsAll(). With kUpdate, the rule also has a member Direction(w, g, a, b): it
  // updates the slots and returns r. operator() then gets the new slots, and must not change them.
  static constexpr TrustNorm kTrustNorm = TrustNorm::kNone;
  static bool AdaptsAll(const auto&) { return false; }
  static constexpr double TrustRatio(const auto&, double /*weight_decay*/, double /*weight_norm*/,
                                     double /*norm*/) {
    return 1;
  }

  // Gradients are clipped to this global norm, in addition to clip_gradient_norm; 0: no clipping.
  static double MaxGradientNorm(const auto&) { return 0; }

  // Whether OtherRule<T, Build> takes the place of Rule.
  static bool UsesOtherRule(const auto&) { return false; }

  static KerasOptimizer KerasOf(const auto&) { return {}; }
};

// Rounds as TensorFlow does, which keeps settings as float32, whatever the type of the weights.
constexpr float ToFloat32(double setting) { return static_cast<float>(setting); }

// Settings that several optimizers share.
Setting MomentumSetting(auto& o) {
  return {"momentum", "Momentum of the optimizers momentum and lars.", &o.momentum, kFraction};
}
// With an epsilon of 0, the update of a weight whose gradients decay to 0 would divide by 0.
Setting EpsilonSetting(auto& o) {
  return {"opt_epsilon", "Epsilon of adadelta, adam and rmsprop.", &o.opt_epsilon, MoreThan(0)};
}

}  // namespace carole
