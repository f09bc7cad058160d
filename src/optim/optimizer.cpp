#include "src/optim/optimizer.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "src/backend/arena_math.h"
#include "src/backend/host_view.h"
#include "src/core/check.h"
#include "src/core/error.h"

namespace carole::optim {
namespace {

// TensorFlow keeps all these numbers as float32, whatever the type of the weights. We round them in
// the same way. So checkpoints, which store floats, lose nothing.
double Rounded(double value) { return static_cast<float>(value); }

UpdateCoefficients Rounded(const UpdateCoefficients& c) {
  static_assert(sizeof c == 11 * sizeof(double), "add new coefficients here and in train_plan.cpp");
  return {.learning_rate = c.learning_rate,
          .momentum = Rounded(c.momentum),
          .decay = Rounded(c.decay),
          .decay2 = Rounded(c.decay2),
          .epsilon = Rounded(c.epsilon),
          .power = Rounded(c.power),
          .l1 = Rounded(c.l1),
          .l2 = Rounded(c.l2)};
}

// Joins adjacent segments, so that CutIntoBlocks() makes fewer blocks.
std::vector<Segment> Merge(const std::vector<Segment>& segments) {
  std::vector<Segment> merged;
  for (const Segment& s : segments) {
    if (!merged.empty() && merged.back().end == s.begin) {
      merged.back().end = s.end;
    } else {
      merged.push_back(s);
    }
  }
  return merged;
}

constexpr const char* kPowerNames[] = {"beta1_power", "beta2_power"};

}  // namespace

double GradientNorm(const UpdateSums& sums, double gradient_scale) {
  return gradient_scale * std::sqrt(sums.gradient_squares);
}

double RegularizationLoss(const UpdateSums& sums, double weight_decay) {
  return 0.5 * weight_decay * sums.weight_squares;
}

Optimizer::Optimizer(const OptimizerEntry& entry, const OptimizerOptions& options,
                     const ParameterArenas& arenas, const Backend& backend)
    : backend_(backend),
      plan_(entry.plan(options)),
      clip_norm_(options.clip_gradient_norm),
      dtype_(arenas.dtype),
      count_(arenas.count),
      coefficients_(Rounded(plan_.coefficients)) {
  CAROLE_CHECK(plan_.slots.size() <= kMaxSlots, "{} slots", plan_.slots.size());
  for (const auto& [option, value] :
       {std::pair{"clip_gradient_norm", clip_norm_}, {"weight_decay", options.weight_decay}}) {
    if (value >= 0) continue;  // false for NaN
    throw UsageError({.tag = "optim",
                      .option = option,
                      .problem = "out of range",
                      .got = value,
                      .want = "0 or more"});
  }
  UpdateJob job{.rule = plan_.rule,
                .dtype = dtype_,
                .weights = arenas.weights,
                .gradients = arenas.gradients,
                .count = count_,
                .regularized = plan_.trust == 0 ? Merge(arenas.regularized) : arenas.regularized,
                .copies = arenas.copies,
                .weight_decay = options.weight_decay,
                .clip_norm = clip_norm_,
                .trust = plan_.trust};
  for (const Slot& slot : plan_.slots) {
    AllocateSlot(slot);
    job.slots[memory_.size() - 1] = memory_.back().get();
  }
  updater_ = backend.arena_math().MakeUpdater(job);
  if (plan_.has_powers) {
    SetScalar(kPowerNames[0], coefficients_.decay);
    SetScalar(kPowerNames[1], coefficients_.decay2);
  }
}

void Optimizer::AllocateSlot(const Slot& slot) {
  memory_.push_back(backend_.Allocate(slot_bytes()));
  if (slot.initial == 0) return;
  const HostView view(backend_, memory_.back().get(), slot_bytes());
  if (dtype_ == DType::kF64) {
    for (double& x : view.as<double>()) x = slot.initial;
  } else {
    for (float& x : view.as<float>()) x = static_cast<float>(slot.initial);
  }
  view.Store();
}

size_t Optimizer::slot_bytes() const { return static_cast<size_t>(count_) * SizeOf(dtype_); }

void Optimizer::BeginStep(double learning_rate, double gradient_scale, bool continues) {
  coefficients_.learning_rate = learning_rate;
  coefficients_.gradient_scale = gradient_scale;
  coefficients_.decay_power = powers_[0];
  coefficients_.decay2_power = powers_[1];
  inspected_ = 0;
  updater_->BeginStep(coefficients_, continues);
}

void Optimizer::Inspect(int64_t begin, int64_t end) {
  CAROLE_CHECK(0 <= begin && begin <= end && end <= count_, "range [{}, {}) of {} gradients", begin,
               end, count_);
  if (begin < end) updater_->Inspect({begin, end});
  inspected_ += end - begin;
}

void Optimizer::Update() {
  if (clip_norm_ != 0) CAROLE_CHECK_EQ(inspected_, count_, "gradients inspected in this step");
  updater_->Update();
}

UpdateSums Optimizer::Sums() const {
  UpdateSums sums;
  backend_.CopyToHost(reinterpret_cast<std::byte*>(&sums),
                      reinterpret_cast<const std::byte*>(updater_->sums()), sizeof sums);
  return sums;
}

void Optimizer::EndStep() {
  if (!plan_.has_powers) return;
  SetScalar(kPowerNames[0], powers_[0] * coefficients_.decay);
  SetScalar(kPowerNames[1], powers_[1] * coefficients_.decay2);
}

std::vector<OptimizerScalar> Optimizer::scalars() const {
  if (!plan_.has_powers) return {};
  return {{kPowerNames[0], powers_[0]}, {kPowerNames[1], powers_[1]}};
}

void Optimizer::SetScalar(const std::string& name, double value) {
  const bool second = name == kPowerNames[1];
  if (!plan_.has_powers || (!second && name != kPowerNames[0]))
    throw DataError(
        fmt::format("[optim] {}: unknown scalar: {} of this run has none of this name; use the "
                    "optimizer that wrote the checkpoint",
                    name, Option("optimizer")));
  powers_[second] = Rounded(value);
}

}  // namespace carole::optim
