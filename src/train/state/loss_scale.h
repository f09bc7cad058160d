// Loss scaling. The loss is multiplied by the scale before backward, so that small gradients do not
// underflow in 16 bits. The gradients are divided by the scale before they are used. The scale is a
// power of two, so it changes no digit of a value that does not overflow.
// Source: Micikevicius et al. 2018, "Mixed precision training".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/backend/backend.h"
#include "src/optim/optimizer.h"

namespace carole::train {

struct LossScaleOptions {
  double initial = 1;
  // The scale is halved if gradients overflow, and doubled after kGrowthInterval good steps.
  bool is_dynamic = false;
};

// Parses the option loss_scale: "auto" (dynamic with fp16, otherwise 1), "dynamic", or a
// number. Throws UsageError if the value is none of these or the number is not a power of two.
LossScaleOptions ParseLossScale(const std::string& text, Precision precision);

// The loss scale of a run. It has the same value on every rank, as all ranks make the same decision
// about each step.
class LossScale {
 public:
  static constexpr double kInitial = 0x1p15;  // first value of a dynamic scale
  static constexpr double kMaxScale = 0x1p24;
  static constexpr int64_t kGrowthInterval = 2000;

  explicit LossScale(const LossScaleOptions& options = {}) : options_(options) {
    value_ = options.initial;
  }

  double value() const { return value_; }
  bool is_dynamic() const { return options_.is_dynamic; }

  // Call this after a step that was applied.
  void RecordGoodStep();
  // Call this after a step with a finite loss but gradients that are not finite. Returns true if
  // the scale may be the cause; the scale is halved then. Returns false if the scale is fixed or
  // already 1.
  bool RecordOverflow();

  // The state for checkpoints: current scale and number of good steps. Empty if the scale is fixed.
  std::vector<optim::OptimizerScalar> scalars() const;
  // Restores one of scalars(). Throws DataError if the value is invalid.
  void SetScalar(const std::string& name, double value);

 private:
  LossScaleOptions options_;
  double value_ = 1;
  int64_t good_steps_ = 0;  // since the scale last changed
};

}  // namespace carole::train
