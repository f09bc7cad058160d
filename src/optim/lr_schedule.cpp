#include "src/optim/lr_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/core/error.h"

namespace carole::optim {

LearningRate::LearningRate(const LearningRateOptions& o)
    : rate_(static_cast<float>(o.learning_rate)),
      end_rate_(static_cast<float>(o.end_learning_rate)),
      factor_(static_cast<float>(o.decay_factor)) {
  if (o.type == "fixed") {
    kind_ = Kind::kFixed;
  } else if (o.type == "exponential") {
    kind_ = Kind::kExponential;
  } else if (o.type == "polynomial") {
    kind_ = Kind::kPolynomial;
  } else {
    throw UsageError(
        fmt::format("[optim] --learning_rate_decay_type: no such type: got {}, want fixed, "
                    "exponential or polynomial",
                    o.type));
  }
  const double steps_per_epoch =
      static_cast<double>(o.num_samples) /
      (static_cast<double>(o.batch_size) * static_cast<double>(o.replicas_to_aggregate));
  warmup_steps_ = steps_per_epoch * o.warmup_epochs;
  if (kind_ == Kind::kFixed) return;
  decay_steps_ = static_cast<int64_t>(steps_per_epoch * o.num_epochs_per_decay);
  if (decay_steps_ <= 0) {
    throw UsageError(
        fmt::format("[optim] --num_epochs_per_decay: the rate would decay every {} steps ({} "
                    "samples, batches of {}): got {}, want more, or "
                    "--learning_rate_decay_type=fixed",
                    decay_steps_, o.num_samples, o.batch_size, o.num_epochs_per_decay));
  }
}

// Multiplies by reciprocals where TensorFlow's graph optimizer makes them of divisions.
float LearningRate::At(int64_t step) const {
  const float now = static_cast<float>(step);
  const float decay_steps = static_cast<float>(decay_steps_);
  float rate = rate_;
  if (kind_ == Kind::kExponential) {
    rate = rate_ * std::pow(factor_, std::floor(now / decay_steps));
  } else if (kind_ == Kind::kPolynomial) {
    rate = (rate_ - end_rate_) * (1.0f - std::min(now, decay_steps) * (1.0f / decay_steps)) +
           end_rate_;
  }
  if (warmup_steps_ > 0)
    rate = std::min(rate, rate_ * now * (1.0f / static_cast<float>(warmup_steps_)));
  return rate;
}

}  // namespace carole::optim
