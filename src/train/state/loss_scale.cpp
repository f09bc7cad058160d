#include "src/train/state/loss_scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/core/error.h"
#include "src/core/text/parse_number.h"

namespace carole::train {
namespace {

constexpr char kScale[] = "loss_scale", kGoodSteps[] = "loss_scale_good_steps";

// Returns true for a power of two in the valid range.
bool IsScale(double value) {
  int exponent = 0;
  return value >= 1 && value <= LossScale::kMaxScale && std::frexp(value, &exponent) == 0.5;
}

}  // namespace

LossScaleOptions ParseLossScale(const std::string& text, Precision precision) {
  if (text == "dynamic" || (text == "auto" && precision == Precision::kFp16))
    return {.initial = LossScale::kInitial, .is_dynamic = true};
  if (text == "auto") return {};
  const double scale = ParseNumber<double>(text).value_or(0);
  if (!IsScale(scale)) {
    throw UsageError({.tag = "train",
                      .option = "loss_scale",
                      .got = text,
                      .want = fmt::format("auto, dynamic, or a power of two from 1 to {:.0f}",
                                          LossScale::kMaxScale)});
  }
  return {.initial = scale};
}

void LossScale::RecordGoodStep() {
  if (!options_.is_dynamic || ++good_steps_ < kGrowthInterval) return;
  value_ = std::min(2 * value_, kMaxScale);
  good_steps_ = 0;
}

bool LossScale::RecordOverflow() {
  if (!options_.is_dynamic || value_ <= 1) return false;
  value_ /= 2;
  good_steps_ = 0;
  return true;
}

std::vector<optim::OptimizerScalar> LossScale::scalars() const {
  if (!options_.is_dynamic) return {};
  return {{kScale, value_}, {kGoodSteps, static_cast<double>(good_steps_)}};
}

void LossScale::SetScalar(const std::string& name, double value) {
  const bool is_scale = name == kScale;
  const bool fits =
      is_scale ? IsScale(value) : value >= 0 && value < static_cast<double>(kGrowthInterval);
  if (!fits) {
    throw DataError(fmt::format("[train] {}: invalid value in the checkpoint: got {}, want {}",
                                name, value,
                                is_scale ? "a power of two" : "a number of steps below 2000"));
  }
  if (is_scale) {
    value_ = value;
  } else {
    good_steps_ = static_cast<int64_t>(value);
  }
}

}  // namespace carole::train
