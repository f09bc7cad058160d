// The optimizers by name: what an Optimizer needs to know of each. The optimizers themselves are in
// src/backend/optimizers. Names, defaults and arithmetic of adadelta, adagrad, adam, ftrl,
// momentum, rmsprop and sgd are those of TF-Slim's trainer.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/backend/optimizers/optimizers.h"

namespace carole::optim {

using carole::OptimizerOptions;
using carole::Slot;

// An optimizer with its settings: everything that stays the same in all steps. optimizer.h in
// src/backend/optimizers explains the members.
struct UpdatePlan {
  int rule = 0;
  std::vector<Slot> slots;
  bool decays_weights = false;
  Powers powers = Powers::kNone;
  std::array<double, 2> decays = {};
  TrustNorm trust_norm = TrustNorm::kNone;
  bool adapts_all = false;
  double max_gradient_norm = 0;
  KerasOptimizer keras;
};

struct OptimizerEntry {
  std::string_view name;
  // The settings that the optimizer reads, whose values are in `options`.
  Settings (*settings)(OptimizerOptions& options);
  // Makes the plan. Throws UsageError if a setting is out of range.
  UpdatePlan (*plan)(const OptimizerOptions& options);

  // The factor of the L2 regularization in the loss; 0 for optimizers that decay the weights
  // themselves.
  double LossWeightDecay(const OptimizerOptions& options) const;
};

// All optimizers, sorted by name.
extern const std::span<const OptimizerEntry> kOptimizers;

// Returns the optimizer of this name. Throws UsageError, which lists all names, if there is none.
const OptimizerEntry& FindOptimizer(std::string_view name);

// The settings that all optimizers obey, whose values are in `options`.
Settings CommonSettings(OptimizerOptions& options);

}  // namespace carole::optim
