#include "src/optim/lr_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "src/core/error.h"
#include "src/core/text/to_int64.h"

namespace carole::optim {
namespace {

double GlobalBatch(const LearningRateOptions& o) {
  return static_cast<double>(o.batch_size) * static_cast<double>(o.ranks);
}

double ScaledRate(const LearningRateOptions& o) {
  return o.base_batch > 0 ? o.learning_rate * GlobalBatch(o) / static_cast<double>(o.base_batch)
                          : o.learning_rate;
}

// A negative learning rate would increase the loss.
void RequireNotNegative(const char* option, double value) {
  if (std::isfinite(value) && value >= 0) return;
  throw UsageError({.tag = "optim",
                    .option = option,
                    .problem = "out of range",
                    .got = value,
                    .want = "0 or more"});
}

}  // namespace

LearningRate::Kind LearningRate::KindOf(std::string_view type) {
  constexpr std::pair<std::string_view, Kind> kKinds[] = {{"fixed", Kind::kFixed},
                                                          {"exponential", Kind::kExponential},
                                                          {"polynomial", Kind::kPolynomial},
                                                          {"cosine", Kind::kCosine},
                                                          {"piecewise", Kind::kPiecewise}};
  for (const auto& [name, kind] : kKinds) {
    if (name == type) return kind;
  }
  throw UsageError({.tag = "optim",
                    .option = "learning_rate_decay_type",
                    .problem = "unknown type",
                    .got = type,
                    .want = kDecayTypes});
}

LearningRate::LearningRate(const LearningRateOptions& o)
    : kind_(KindOf(o.type)),
      rate_(static_cast<float>(ScaledRate(o))),
      end_rate_(static_cast<float>(o.end_learning_rate)),
      factor_(static_cast<float>(o.decay_factor)) {
  RequireNotNegative("learning_rate", o.learning_rate);
  RequireNotNegative("end_learning_rate", o.end_learning_rate);
  RequireNotNegative("learning_rate_decay_factor", o.decay_factor);
  RequireNotNegative("warmup_epochs", o.warmup_epochs);
  for (double factor : o.factors) RequireNotNegative("learning_rate_factors", factor);
  // A different rounding here can change decay_steps by 1, so each program's order of operations is
  // kept: TF-Slim divides twice. The official ResNet, whose schedule is piecewise, divides by the
  // global batch.
  const auto batch = static_cast<double>(o.batch_size);
  const auto replicas = static_cast<double>(o.replicas_to_aggregate);
  const auto samples = static_cast<double>(o.num_samples);
  const double steps_per_epoch =
      kind_ == Kind::kPiecewise ? samples / (batch * replicas) : samples / batch / replicas;
  warmup_steps_ = steps_per_epoch * o.warmup_epochs;
  if (kind_ == Kind::kPiecewise) PlanPieces(o, steps_per_epoch);
  if (kind_ == Kind::kFixed || kind_ == Kind::kPiecewise) return;
  decay_steps_ = DecaySteps(o, steps_per_epoch);
}

int64_t LearningRate::DecaySteps(const LearningRateOptions& o, double steps_per_epoch) {
  if (o.num_epochs_per_decay == 0 && kind_ != Kind::kExponential && o.run_steps > 0)
    return o.run_steps;
  if (!(o.num_epochs_per_decay > 0)) {
    throw UsageError({.tag = "optim",
                      .option = "num_epochs_per_decay",
                      .problem = "out of range",
                      .got = o.num_epochs_per_decay,
                      .want = kind_ == Kind::kExponential
                                  ? "more than 0"
                                  : "more than 0, or 0 for a run that has an end",
                      .hint = "or use " + Option("learning_rate_decay_type", "fixed")});
  }
  const int64_t steps = ToInt64(steps_per_epoch * o.num_epochs_per_decay);
  decays_in_each_step_ = steps < 1;
  return std::max<int64_t>(1, steps);
}

void LearningRate::PlanPieces(const LearningRateOptions& o, double steps_per_epoch) {
  if (o.factors.size() != o.boundaries.size() + 1) {
    throw UsageError({.tag = "optim",
                      .option = "learning_rate_factors",
                      .problem = "wrong number of factors",
                      .got = o.factors.size(),
                      .want = fmt::format("{}, one more than {}", o.boundaries.size() + 1,
                                          Option("learning_rate_boundaries"))});
  }
  if (!std::is_sorted(o.boundaries.begin(), o.boundaries.end())) {
    throw UsageError({.tag = "optim",
                      .option = "learning_rate_boundaries",
                      .problem = "not in ascending order",
                      .hint = "sort them"});
  }
  for (double epochs : o.boundaries) boundary_steps_.push_back(ToInt64(steps_per_epoch * epochs));
  for (double factor : o.factors)
    piece_rates_.push_back(static_cast<float>(ScaledRate(o) * factor));
}

// Some divisions are written as multiplications by the reciprocal, because TensorFlow's graph
// optimizer replaces them in this way.
float LearningRate::At(int64_t step) const {
  const float now = static_cast<float>(step);
  const float decay_steps = static_cast<float>(decay_steps_);
  float rate = rate_;
  switch (kind_) {
    case Kind::kFixed:
      break;
    case Kind::kExponential:
      rate = rate_ * std::pow(factor_, std::floor(now * (1.0f / decay_steps)));
      break;
    case Kind::kPolynomial:
      rate = (rate_ - end_rate_) * (1.0f - std::min(now, decay_steps) * (1.0f / decay_steps)) +
             end_rate_;
      break;
    case Kind::kCosine: {
      const float progress = std::min(now, decay_steps) / decay_steps;
      rate = (rate_ - end_rate_) * 0.5f * (1.0f + std::cos(std::numbers::pi_v<float> * progress)) +
             end_rate_;
      break;
    }
    case Kind::kPiecewise:
      rate = piece_rates_[std::lower_bound(boundary_steps_.begin(), boundary_steps_.end(), step) -
                          boundary_steps_.begin()];
      break;
  }
  if (warmup_steps_ > 0)
    rate = std::min(rate, rate_ * now * (1.0f / static_cast<float>(warmup_steps_)));
  return rate;
}

std::string LearningRate::Describe(const LearningRateOptions& o) const {
  std::string text = fmt::format("{:g}", rate_);
  if (o.base_batch > 0)
    text += fmt::format(" ({:g} for global batches of {})", o.learning_rate, o.base_batch);
  switch (kind_) {
    case Kind::kFixed:
      text += ", fixed";
      break;
    case Kind::kExponential:
      text += fmt::format(", times {:g} every {} steps (decay_steps)", factor_, decay_steps_);
      break;
    case Kind::kPolynomial:
    case Kind::kCosine:
      text +=
          fmt::format(", {} to {:g} in {} steps (decay_steps)", o.type, end_rate_, decay_steps_);
      break;
    case Kind::kPiecewise:
      for (size_t i = 0; i < boundary_steps_.size(); ++i)
        text += fmt::format(", times {:g} after step {}", o.factors[i + 1], boundary_steps_[i]);
      break;
  }
  if (o.warmup_epochs > 0) text += fmt::format(", warm-up of {:g} epochs", o.warmup_epochs);
  return text;
}

}  // namespace carole::optim
