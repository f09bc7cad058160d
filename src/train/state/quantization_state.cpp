#include "src/train/state/quantization_state.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "src/graph/quantization_names.h"

namespace carole::train {
namespace {

void SetScalar(const Tensor& input, double value) {
  if (input.dtype == DType::kF64) {
    *input.as<double>() = value;
  } else {
    *input.as<float>() = static_cast<float>(value);
  }
}

}  // namespace

bool IsQuantizationState(std::string_view name) {
  constexpr std::string_view kParts[] = {
      "/min", "/max", "/min/biased", "/max/biased", "/min/local_step", "/max/local_step"};
  // NAME_quant/min, NAME_quant_1/min
  return name == kQuantizationStep || (name.find("_quant") != name.npos &&
                                       std::ranges::any_of(kParts, [name](std::string_view part) {
                                         return name.ends_with(part);
                                       }));
}

QuantizationInputs::QuantizationInputs(const Graph& graph, const Executable& executable,
                                       const VariableStore& store)
    : executable_(executable),
      store_(store),
      counter_(store.Find(kQuantizationStep)),
      has_step_(graph.FindInput(kQuantizationStep) != kNone),
      has_l2_(graph.FindInput(kL2Weight) != kNone) {}

void QuantizationInputs::Set(int64_t step, double l2_weight) {
  if (has_l2_) SetScalar(executable_.Input(kL2Weight), l2_weight);
  if (!has_step_) return;
  if (!is_known_) {
    double done = 0;
    store_.ReadFrom(store_.base_of(counter_), counter_, std::span<double>(&done, 1));
    ahead_ = std::round(done) - static_cast<double>(step);  // a mean over ranks is rounded
    is_known_ = true;
  }
  SetScalar(executable_.Input(kQuantizationStep), static_cast<double>(step) + 1 + ahead_);
}

}  // namespace carole::train
