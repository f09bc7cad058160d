// Makes the inputs of conformance cases.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/backend/ops/batch_norm.h"
#include "src/backend/ops/conv2d.h"
#include "src/backend/ops/hard_activation.h"
#include "src/backend/ops/normalize.h"
#include "src/backend/ops/pool2d.h"
#include "src/backend/ops/relu.h"
#include "src/backend/ops/softmax.h"
#include "src/core/hash.h"
#include "tests/backend/conformance_case.h"
#include "tests/backend/quantization/quantized_cases.h"
#include "tests/support/op_runner.h"

namespace carole::testing {

inline constexpr int kThreads = 2;

inline const Backend& Oracle() {
  static const std::unique_ptr<Backend> backend = MakeReferenceBackend(kThreads);
  return *backend;
}

inline Elements Rounded(Elements values) {
  for (double& v : values) v = static_cast<float>(v);
  return values;
}

// Rounds the inputs to numbers that their types can hold.
inline void RoundTo(const OpSpec& spec, std::vector<Elements>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (double& v : inputs[i]) {
      const auto wide = static_cast<float>(v);
      if (spec.inputs[i].dtype == DType::kBF16) v = static_cast<float>(Bf16(wide));
      if (spec.inputs[i].dtype == DType::kF16) v = static_cast<float>(Fp16(wide));
    }
  }
}

inline OpSpec InType(const OpSpec& spec, DType type) {
  return type == DType::kF64 ? InDouble(spec) : IsNarrow(type) ? InNarrow(spec, type) : spec;
}

// Computes the inputs that come from the forward pass of the same x: statistics, and y or its mask.
inline void PrepareBatchNormBackward(const ConformanceCase& c, std::vector<Elements>& inputs) {
  constexpr auto kIn = kPosition<BatchNormBackwardInputs>;
  constexpr auto kOut = kPosition<BatchNormBackwardOutputs>;
  const auto& specs = c.spec.inputs;
  const OpSpec forward =
      InDouble(BatchNormSpec({.x = specs[kIn.x].shape,
                              .gamma = specs[kIn.gamma].present,
                              .beta = specs[kIn.beta].present,
                              .residual = c.spec.outputs[kOut.dresidual].present,
                              .attributes = c.spec.attributes.as<BatchNormAttributes>(),
                              .relu_bitmask = HasReluBitmask(c.spec)}));
  const Elements ones(specs[kIn.mean].shape.size(), 1.0);
  Elements residual;
  if (forward.inputs[kPosition<BatchNormInputs>.residual].present) {
    residual = inputs[kIn.dy];
    residual.resize(inputs[kIn.x].size());  // if x is a slice, dy has more elements
  }
  const auto outputs = RunPlain(
      Oracle(), forward, {inputs[kIn.x], inputs[kIn.gamma], inputs[kIn.beta], residual, ones, ones},
      c.context);
  if (specs[kIn.y].present) inputs[kIn.y] = Rounded(outputs[kPosition<BatchNormOutputs>.y]);
  if (HasReluBitmask(c.spec))
    inputs[kIn.relu_bitmask] = outputs[kPosition<BatchNormOutputs>.relu_bitmask];
  inputs[kIn.mean] = Rounded(outputs[kPosition<BatchNormOutputs>.mean]);
  inputs[kIn.rstd] = Rounded(outputs[kPosition<BatchNormOutputs>.rstd]);
}

// Changes the random inputs of some operations to values that can occur.
inline void PrepareInputs(const ConformanceCase& c, std::vector<Elements>& inputs) {
  const OpKind kind = c.spec.kind;
  const auto change = [&](size_t input, auto f) {
    for (double& v : inputs[input]) v = f(v);
  };
  const auto times4 = [](double v) { return 4 * v; };
  PrepareQuantization(c.spec, inputs);
  if (kind == op::kBatchNorm) {
    change(kPosition<BatchNormInputs>.moving_variance, [](double v) { return std::abs(v) + 0.5; });
  } else if (kind == op::kBatchNormBackward) {
    PrepareBatchNormBackward(c, inputs);
  } else if (kind == op::kRelu || kind == op::kHardActivation) {
    change(0, times4);  // some are outside of the activation's corners
  } else if (kind == op::kHardActivationBackward) {
    change(1, times4);
  } else if (HasReluYInput(c.spec)) {
    static_assert(kPosition<Conv2dBackwardDataInputs>.relu_y ==
                  kPosition<FilterGradientInputs>.relu_y);
    change(kPosition<FilterGradientInputs>.relu_y, [](double v) { return std::max(v, 0.0); });
  } else if (kind == op::kReluBackward) {
    const double ceiling = c.spec.attributes.as<ReluAttributes>().ceiling;
    change(kPosition<ReluBackwardInputs>.y,
           [=](double v) { return std::clamp(4 * v, 0.0, ceiling > 0 ? ceiling : 100.0); });
  } else if (kind == op::kPool2d) {
    change(0, [](double v) { return std::round(2 * v); });  // ties: the first largest must win
  } else if (kind == op::kNormalize) {
    change(0, [](double v) { return std::clamp(std::round(128 + 70 * v), 0.0, 255.0); });
  } else if (kind == op::kSoftmaxCrossEntropy) {
    const int64_t k = c.spec.inputs[0].shape[1];
    const bool is_soft = c.spec.inputs[1].shape.rank() == 2;
    if (is_soft) std::ranges::fill(inputs[1], 0);
    for (size_t i = 0; i < inputs[2].size(); ++i) {
      inputs[2][i] = i % 3 == 1 ? 0 : 1 + 0.5 * (i % 2);
      if (!is_soft) {
        inputs[1][i] = i % 3 == 1 ? -1 : static_cast<double>(7 * i % k);
      } else if (i % 3 == 1) {
        inputs[1][i * k] = NAN;
      } else {  // 0.75 for one class, 0.25 for another
        inputs[1][i * k + 7 * i % k] = 0.75;
        inputs[1][i * k + (7 * i + 3) % k] = 0.25;
      }
    }
  }
}

// Makes the inputs of a case, in numbers that `type` can hold.
inline std::vector<Elements> CaseInputs(const ConformanceCase& c, DType type) {
  std::vector<Elements> inputs;
  for (const TensorSpec& t : c.spec.inputs) {
    inputs.push_back(t.present ? RandomElements(t.shape.size(), Fnv1a64(c.name) + inputs.size())
                               : Elements());
  }
  const OpSpec spec = InType(c.spec, type);
  RoundTo(spec, inputs);
  PrepareInputs(c, inputs);
  RoundTo(spec, inputs);
  return inputs;
}

}  // namespace carole::testing
