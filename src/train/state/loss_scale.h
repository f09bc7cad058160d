// Loss scaling: the loss is multiplied before backward, so that small gradients do not vanish in
// 16 bits, and the gradients divided before they are used (Micikevicius et al. 2018, "Mixed
// precision training"). A scale is a power of two, which changes no digits of what does not
// overflow.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/backend/backend.h"
#include "src/optim/optimizer.h"

namespace carole::train {

struct LossScaleOptions {
  double initial = 1;
  bool is_dynamic = false;  // halves when gradients overflow, doubles after kGrowEvery good steps
};

// Of --loss_scale: "auto" (dynamic with fp16, else none), "dynamic", or a number. Throws
// UsageError for what is none of these, and for numbers that are no power of two.
LossScaleOptions ParseLossScale(const std::string& flag, Precision precision);

// The same on every rank, as all decide alike over each step.
class LossScale {
 public:
  static constexpr double kInitial = 0x1p15;  // of a dynamic one
  static constexpr double kLargest = 0x1p24;
  static constexpr int64_t kGrowEvery = 2000;

  explicit LossScale(const LossScaleOptions& options = {}) : options_(options) {
    value_ = options.initial;
  }

  double value() const { return value_; }

  // After a step that was applied.
  void NoteGood();
  // After one whose loss was finite, but not its gradients. Whether the scale may be to blame: then
  // it is half as large now.
  bool NoteOverflow();

  // For checkpoints; none where the scale is fixed.
  std::vector<optim::OptimizerScalar> scalars() const;
  void SetScalar(const std::string& name, double value);  // of one of these

 private:
  LossScaleOptions options_;
  double value_ = 1;
  int64_t good_steps_ = 0;  // since it changed
};

}  // namespace carole::train
