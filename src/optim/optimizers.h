// The table of optimizers. Names, defaults and arithmetic are those of TF-Slim's trainer; lars is
// the only one that TF-Slim does not have. README.md says how to add one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/backend/update.h"

namespace carole::optim {

// The settings of all optimizers. Each field has the name of its flag.
struct OptimizerOptions {
  double weight_decay = 4e-5;  // L2 regularization of the variables that the net regularizes
  double momentum = 0.9;       // of momentum and lars
  bool nesterov = false;       // of momentum
  double lars_eta = 0.001;     // trust coefficient of lars
  double lars_epsilon = 0;
  double rmsprop_momentum = 0.9;
  double rmsprop_decay = 0.9;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double opt_epsilon = 1.0;  // of adadelta, adam and rmsprop
  double adadelta_rho = 0.95;
  double adagrad_initial_accumulator_value = 0.1;
  double ftrl_learning_rate_power = -0.5;
  double ftrl_initial_accumulator_value = 0.1;
  double ftrl_l1 = 0;
  double ftrl_l2 = 0;
  // Gradients are clipped to this global L2 norm, measured without weight decay; 0: no clipping.
  double clip_gradient_norm = 0;
};

// A slot is one state value for each weight, such as its momentum. In checkpoints the slot of a
// variable is called VARIABLE/<name>.
struct Slot {
  std::string name;
  double initial = 0;  // initial value of all elements
};

// An optimizer with its settings: everything that stays the same in all steps.
struct UpdatePlan {
  UpdateRule rule = UpdateRule::kSgd;
  UpdateCoefficients coefficients;  // without the learning rate and the powers
  std::vector<Slot> slots;
  // Whether the optimizer keeps decay^t and decay2^t (t: the number of steps). In checkpoints they
  // are called beta1_power and beta2_power.
  bool has_powers = false;
  // The trust coefficient of LARS. If not 0, the learning rate of each regularized variable is that
  // of the step times trust * |w| / (|g| + weight_decay * |w| + epsilon).
  double trust = 0;
};

struct OptimizerEntry {
  std::string_view name;
  // Makes the plan. Throws UsageError, which names the flag, if a setting is out of range.
  UpdatePlan (*plan)(const OptimizerOptions& options);
};

// All optimizers, sorted by name.
extern const std::span<const OptimizerEntry> kOptimizers;

// Returns the optimizer of this name. Throws UsageError, which lists all names, if there is none.
const OptimizerEntry& FindOptimizer(std::string_view name);

}  // namespace carole::optim
