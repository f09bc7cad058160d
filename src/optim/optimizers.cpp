#include "src/optim/optimizers.h"

#include "src/core/error.h"
#include "src/core/text/join_names.h"

namespace carole::optim {
namespace {

void Require(bool in_range, const char* option, double value, const char* want) {
  if (in_range) return;
  throw UsageError(
      {.tag = "optim", .option = option, .problem = "out of range", .got = value, .want = want});
}

// With an epsilon of 0, the update of a weight whose gradients decay to 0 would divide by 0.
void CheckEpsilon(const OptimizerOptions& o) {
  Require(o.opt_epsilon > 0, "opt_epsilon", o.opt_epsilon, "more than 0");
}

void CheckFraction(const char* flag, double value) {
  Require(value >= 0 && value < 1, flag, value, "0 <= value < 1");
}

UpdatePlan PlanSgd(const OptimizerOptions&) {
  return {.rule = UpdateRule::kSgd, .coefficients = {}, .slots = {}};
}

UpdatePlan PlanMomentum(const OptimizerOptions& o) {
  CheckFraction("momentum", o.momentum);
  return {.rule = o.nesterov ? UpdateRule::kNesterov : UpdateRule::kMomentum,
          .coefficients = {.momentum = o.momentum},
          .slots = {{"Momentum", 0}}};
}

UpdatePlan PlanLars(const OptimizerOptions& o) {
  CheckFraction("momentum", o.momentum);
  Require(o.lars_eta > 0, "lars_eta", o.lars_eta, "more than 0");
  Require(o.lars_epsilon >= 0, "lars_epsilon", o.lars_epsilon, "0 or more");
  return {.rule = UpdateRule::kLars,
          .coefficients = {.momentum = o.momentum, .epsilon = o.lars_epsilon},
          .slots = {{"Momentum", 0}},
          .trust = o.lars_eta};
}

UpdatePlan PlanRmsProp(const OptimizerOptions& o) {
  CheckEpsilon(o);
  CheckFraction("rmsprop_decay", o.rmsprop_decay);
  CheckFraction("rmsprop_momentum", o.rmsprop_momentum);
  return {.rule = UpdateRule::kRmsProp,
          .coefficients = {.momentum = o.rmsprop_momentum,
                           .decay = o.rmsprop_decay,
                           .epsilon = o.opt_epsilon},
          .slots = {{"RMSProp", 1}, {"RMSProp_1", 0}}};
}

UpdatePlan PlanAdam(const OptimizerOptions& o) {
  CheckEpsilon(o);
  CheckFraction("adam_beta1", o.adam_beta1);
  CheckFraction("adam_beta2", o.adam_beta2);
  return {.rule = UpdateRule::kAdam,
          .coefficients = {.decay = o.adam_beta1, .decay2 = o.adam_beta2, .epsilon = o.opt_epsilon},
          .slots = {{"Adam", 0}, {"Adam_1", 0}},
          .has_powers = true};
}

UpdatePlan PlanAdagrad(const OptimizerOptions& o) {
  const double initial = o.adagrad_initial_accumulator_value;
  Require(initial > 0, "adagrad_initial_accumulator_value", initial, "more than 0");
  return {.rule = UpdateRule::kAdagrad, .coefficients = {}, .slots = {{"Adagrad", initial}}};
}

UpdatePlan PlanAdadelta(const OptimizerOptions& o) {
  CheckEpsilon(o);
  CheckFraction("adadelta_rho", o.adadelta_rho);
  return {.rule = UpdateRule::kAdadelta,
          .coefficients = {.decay = o.adadelta_rho, .epsilon = o.opt_epsilon},
          .slots = {{"Adadelta", 0}, {"Adadelta_1", 0}}};
}

UpdatePlan PlanFtrl(const OptimizerOptions& o) {
  const double power = o.ftrl_learning_rate_power, initial = o.ftrl_initial_accumulator_value;
  Require(power <= 0, "ftrl_learning_rate_power", power, "0 or less");
  Require(initial >= 0, "ftrl_initial_accumulator_value", initial, "0 or more");
  Require(o.ftrl_l1 >= 0, "ftrl_l1", o.ftrl_l1, "0 or more");
  Require(o.ftrl_l2 >= 0, "ftrl_l2", o.ftrl_l2, "0 or more");
  return {.rule = power == -0.5 ? UpdateRule::kFtrl : UpdateRule::kFtrlPower,
          .coefficients = {.power = power, .l1 = o.ftrl_l1, .l2 = o.ftrl_l2},
          .slots = {{"Ftrl", initial}, {"Ftrl_1", 0}}};
}

constexpr OptimizerEntry kRows[] = {
    {.name = "adadelta", .plan = PlanAdadelta}, {.name = "adagrad", .plan = PlanAdagrad},
    {.name = "adam", .plan = PlanAdam},         {.name = "ftrl", .plan = PlanFtrl},
    {.name = "lars", .plan = PlanLars},         {.name = "momentum", .plan = PlanMomentum},
    {.name = "rmsprop", .plan = PlanRmsProp},   {.name = "sgd", .plan = PlanSgd},
};

}  // namespace

constinit const std::span<const OptimizerEntry> kOptimizers = kRows;

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
