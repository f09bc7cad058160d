#include "src/optim/optimizers.h"

#include <tuple>
#include <utility>

#include "src/core/error.h"
#include "src/core/text/join_names.h"

namespace carole::optim {
namespace {

template <size_t kIndex>
using At = std::tuple_element_t<kIndex, OptimizerList>;

template <size_t kIndex>
UpdatePlan Plan(const OptimizerOptions& options) {
  using Row = At<kIndex>;
  OptimizerOptions checked = options;
  CheckSettings("optim", CommonSettings(checked));
  CheckSettings("optim", Row::SettingsOf(checked));
  return {.rule = RuleNumber<Row>() + (Row::UsesOtherRule(options) ? 1 : 0),
          .slots = Row::SlotsOf(options),
          .decays_weights = Row::kDecaysWeights,
          .powers = Row::kPowers,
          .decays = Row::DecaysOf(options),
          .trust_norm = Row::kTrustNorm,
          .adapts_all = Row::AdaptsAll(options),
          .max_gradient_norm = Row::MaxGradientNorm(options),
          .keras = Row::KerasOf(options)};
}

template <size_t... kIndices>
constexpr std::array<OptimizerEntry, sizeof...(kIndices)> MakeRows(
    std::index_sequence<kIndices...>) {
  return {OptimizerEntry{.name = At<kIndices>::kName,
                         .settings = At<kIndices>::template SettingsOf<OptimizerOptions>,
                         .plan = Plan<kIndices>}...};
}

constexpr auto kRows = MakeRows(std::make_index_sequence<std::tuple_size_v<OptimizerList>>());

}  // namespace

constinit const std::span<const OptimizerEntry> kOptimizers = kRows;

double OptimizerEntry::LossWeightDecay(const OptimizerOptions& options) const {
  return plan(options).decays_weights ? 0 : options.weight_decay;
}

Settings CommonSettings(OptimizerOptions& options) {
  return {{"clip_gradient_norm",
           "Largest global norm of the gradient without its L2 terms; 0: no clipping.",
           &options.clip_gradient_norm, AtLeast(0)},
          {"weight_decay",
           "Factor of the L2 regularization of weights, or of their decay if the optimizer "
           "decouples it from the loss.",
           &options.weight_decay, AtLeast(0)}};
}

const OptimizerEntry& FindOptimizer(std::string_view name) {
  for (const OptimizerEntry& entry : kOptimizers) {
    if (entry.name == name) return entry;
  }
  throw UsageError({.tag = "optim",
                    .option = "optimizer",
                    .problem = "unknown optimizer",
                    .got = name,
                    .want = "one of " + JoinNames(kOptimizers)});
}

}  // namespace carole::optim
