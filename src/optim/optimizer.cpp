#include "src/optim/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "src/backend/arena_math.h"
#include "src/backend/host_view.h"
#include "src/core/check.h"
#include "src/core/error.h"

namespace carole::optim {
namespace {

// TensorFlow keeps the powers as float32, whatever the type of the weights. We round them in the
// same way. So checkpoints, which store floats, lose nothing.
double Rounded(double value) { return static_cast<float>(value); }

// Returns the segments whose weight decay or learning rate is their own, in ascending order.
// Without trust ratios, adjacent segments are joined, so that CutIntoBlocks() makes fewer blocks.
std::vector<VariableSegment> SegmentsOf(const ParameterArenas& arenas, const UpdatePlan& plan) {
  std::vector<VariableSegment> segments;
  for (const Segment& s : arenas.regularized) {
    if (plan.trust_norm == TrustNorm::kNone && !segments.empty() &&
        segments.back().end == s.begin) {
      segments.back().end = s.end;
    } else {
      segments.push_back({s, true});
    }
  }
  if (!plan.adapts_all) return segments;
  for (const Segment& s : arenas.not_regularized) segments.push_back({s, false});
  std::ranges::sort(segments, {}, &VariableSegment::begin);
  return segments;
}

// Returns the stricter of two limits, of which 0 means none.
double StricterNorm(double a, double b) { return a == 0 || b == 0 ? a + b : std::min(a, b); }

constexpr const char* kPowerNames[] = {"beta1_power", "beta2_power"};
constexpr char kCountName[] = "update_count";

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
      clip_norm_(StricterNorm(options.clip_gradient_norm, plan_.max_gradient_norm)),
      dtype_(arenas.dtype),
      count_(arenas.count) {
  CAROLE_CHECK(plan_.slots.size() <= kMaxSlots, "{} slots", plan_.slots.size());
  UpdateJob job{.rule = plan_.rule,
                .options = &options,
                .dtype = dtype_,
                .weights = arenas.weights,
                .gradients = arenas.gradients,
                .count = count_,
                .segments = SegmentsOf(arenas, plan_),
                .copies = arenas.copies,
                .clip_norm = clip_norm_};
  for (const Slot& slot : plan_.slots) {
    AllocateSlot(slot);
    job.slots[memory_.size() - 1] = memory_.back().get();
  }
  updater_ = backend.arena_math().MakeUpdater(job);
  if (plan_.powers == Powers::kProducts) {
    SetScalar(kPowerNames[0], plan_.decays[0]);
    SetScalar(kPowerNames[1], plan_.decays[1]);
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
  const bool counts = plan_.powers == Powers::kCount;
  const auto power = [&](int i) {
    return counts ? std::pow(plan_.decays[i], update_count_ + 1) : powers_[i];
  };
  inspected_ = 0;
  updater_->BeginStep({.learning_rate = learning_rate,
                       .gradient_scale = gradient_scale,
                       .decay_power = power(0),
                       .decay2_power = power(1)},
                      continues);
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
  ++update_count_;
  if (plan_.powers != Powers::kProducts) return;
  SetScalar(kPowerNames[0], powers_[0] * Rounded(plan_.decays[0]));
  SetScalar(kPowerNames[1], powers_[1] * Rounded(plan_.decays[1]));
}

std::vector<OptimizerScalar> Optimizer::scalars() const {
  switch (plan_.powers) {
    case Powers::kNone:
      break;
    case Powers::kProducts:
      return {{kPowerNames[0], powers_[0]}, {kPowerNames[1], powers_[1]}};
    case Powers::kCount:
      return {{kCountName, update_count_}};
  }
  return {};
}

void Optimizer::SetScalar(const std::string& name, double value) {
  const bool second = name == kPowerNames[1];
  if (plan_.powers == Powers::kProducts && (second || name == kPowerNames[0])) {
    powers_[second] = Rounded(value);
  } else if (plan_.powers == Powers::kCount && name == kCountName) {
    update_count_ = value;
  } else {
    throw DataError(
        fmt::format("[optim] {}: unknown scalar: {} of this run has none of this name; use the "
                    "optimizer that wrote the checkpoint",
                    name, Option("optimizer")));
  }
}

}  // namespace carole::optim
