// Every optimizer of this program: a row and a function in optimizers.cpp that says which rule,
// numbers and slots it has, the rule's name in UpdateRule (src/backend/update.h) and the rule
// itself in src/backend/update_rules.h; its flags are in src/commands/flags/flags.cpp. Names,
// defaults and arithmetic are those of TF-Slim's trainer, which lacks lars.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/backend/update.h"

namespace carole::optim {

// The trainer's flags.
struct OptimizerOptions {
  double weight_decay = 4e-5;  // L2 of the variables that their net regularizes, any optimizer
  double momentum = 0.9;       // of momentum and lars
  bool nesterov = false;       // of momentum only
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
  double clip_gradient_norm =
      0;  // largest L2 norm of the whole gradient, L2 terms left out; 0: any
};

// One number beside each weight. In checkpoints it is called VARIABLE/<name>.
struct Slot {
  std::string name;
  double initial = 0;
};

struct UpdatePlan {
  UpdateRule rule = UpdateRule::kSgd;
  UpdateCoefficients coefficients;  // but the learning rate and the powers
  std::vector<Slot> slots;
  bool has_powers = false;  // keeps decay^t and decay2^t, `beta1_power` and `beta2_power`
  double trust = 0;  // not 0: each regularized variable has a rate of its own, the step's times
                     // trust * |w| / (|g| + weight_decay * |w| + epsilon)
};

struct OptimizerEntry {
  std::string_view name;
  // Throws UsageError that names the flag when a number makes no sense.
  UpdatePlan (*plan)(const OptimizerOptions& options);
};

extern const std::span<const OptimizerEntry> kOptimizers;

// Throws UsageError that lists the names.
const OptimizerEntry& FindOptimizer(std::string_view name);

}  // namespace carole::optim
