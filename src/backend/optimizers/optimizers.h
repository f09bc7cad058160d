// All optimizers. To add one, write its file (optimizer.h says how), include it here, and add it to
// OptimizerList.
#pragma once

#include <tuple>
#include <type_traits>

#include "src/backend/optimizers/adadelta.h"
#include "src/backend/optimizers/adagrad.h"
#include "src/backend/optimizers/adam.h"
#include "src/backend/optimizers/adamw.h"
#include "src/backend/optimizers/ftrl.h"
#include "src/backend/optimizers/lamb.h"
#include "src/backend/optimizers/lars.h"
#include "src/backend/optimizers/momentum.h"
#include "src/backend/optimizers/rmsprop.h"
#include "src/backend/optimizers/sgd.h"

namespace carole {

using OptimizerList =
    std::tuple<optimizers::Adadelta, optimizers::Adagrad, optimizers::Adam, optimizers::AdamW,
               optimizers::Ftrl, optimizers::Lamb, optimizers::Lars, optimizers::Momentum,
               optimizers::RmsProp, optimizers::Sgd>;

namespace optimizers {
template <typename List>
struct OwnOptions;
template <typename... Optimizer>
struct OwnOptions<std::tuple<Optimizer...>> : Optimizer::Options... {};
}  // namespace optimizers

// The settings of all optimizers. Each field has the name of its flag. Kernels get a copy of it.
struct OptimizerOptions {
  double weight_decay = 4e-5;  // of the variables that the net regularizes
  double momentum = 0.9;
  double opt_epsilon = 1.0;
  // Gradients are clipped to this global L2 norm, measured without weight decay; 0: no clipping.
  double clip_gradient_norm = 0;
  optimizers::OwnOptions<OptimizerList> own = {};  // for instance own.adam_beta1
};
static_assert(std::is_trivially_copyable_v<OptimizerOptions>);

// The number of an optimizer's Rule. That of its OtherRule is one more.
template <typename Optimizer, int kIndex = 0>
constexpr int RuleNumber() {
  if constexpr (std::is_same_v<Optimizer, std::tuple_element_t<kIndex, OptimizerList>>) {
    return 2 * kIndex;
  } else {
    return RuleNumber<Optimizer, kIndex + 1>();
  }
}

// Calls f.template operator()<Optimizer, Rule>() for the rule with this number, and returns its
// result.
template <typename T, typename Build, int kIndex = 0, typename F>
constexpr auto VisitRule(int rule, F f) {
  using Optimizer = std::tuple_element_t<kIndex, OptimizerList>;
  if constexpr (kIndex + 1 < std::tuple_size_v<OptimizerList>) {
    if (rule >= 2 * (kIndex + 1)) return VisitRule<T, Build, kIndex + 1>(rule, f);
  }
  if constexpr (requires { typename Optimizer::template OtherRule<T, Build>; }) {
    if (rule % 2 == 1)
      return f.template operator()<Optimizer, typename Optimizer::template OtherRule<T, Build>>();
  }
  return f.template operator()<Optimizer, typename Optimizer::template Rule<T, Build>>();
}

}  // namespace carole
