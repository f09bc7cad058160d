// The conformance cases of quantized nets, and the inputs that they need.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "src/backend/ops/fake_quant.h"
#include "src/backend/ops/folded_batch_norm.h"
#include "tests/backend/conformance_case.h"
#include "tests/support/elements.h"

namespace carole::testing {

// `step` is 3 in all cases with a delay.
inline void AddFakeQuants(std::vector<ConformanceCase>& cases) {
  using Range = FakeQuantAttributes::Range;
  const Shape blocked{3, 32, 5, 6}, odd{3, 19, 4, 5}, matrix{7, 13}, large{4, 32, 24, 25};
  const TensorSpec filter = FilterSpec({20, 6, 3, 3}), depthwise = FilterSpec({24, 1, 3, 3});
  const struct {
    std::string name;
    TensorSpec x;
    FakeQuantAttributes attributes;
    int64_t valid_rows = 0;
  } rows[] = {
      {"fixed", PlainSpec(blocked), {}},
      {"fixed_odd", PlainSpec(odd), {.bits = 16}},
      {"fixed_matrix", PlainSpec(matrix), {.bits = 4}},
      {"fixed_delayed", PlainSpec(blocked), {.delay = 4}},
      {"fixed_after_delay", PlainSpec(blocked), {.delay = 3}},
      {"filter", filter, {.narrow = true}},
      {"filter_latest", filter, {.range = Range::kLatest, .narrow = true}},
      {"depthwise_latest", depthwise, {.range = Range::kLatest, .narrow = true}},
      {"weights_latest", FilterSpec({10, 37}), {.range = Range::kLatest, .bits = 16}},
      {"latest_delayed", filter, {.range = Range::kLatest, .narrow = true, .delay = 4}},
      {"latest_of_all_rows", PlainSpec(blocked), {.range = Range::kLatest}, 1},
      {"average", PlainSpec(blocked), {.range = Range::kAverage}},
      {"average_odd", PlainSpec(odd), {.range = Range::kAverage, .bits = 16}, 2},
      {"average_matrix", PlainSpec(matrix), {.range = Range::kAverage}, 3},
      {"average_large", PlainSpec(large), {.range = Range::kAverage}, 3},
      {"average_delayed", PlainSpec(blocked), {.range = Range::kAverage, .delay = 4}, 2},
      {"average_after_delay", PlainSpec(odd), {.range = Range::kAverage, .delay = 2}},
      {"average_of_no_row", PlainSpec(blocked), {.range = Range::kAverage}, RunContext::kNoRows},
  };
  for (const auto& [name, x, attributes, valid_rows] : rows) {
    const RunContext context{.valid_rows = valid_rows};
    cases.push_back({"fake_quant_" + name, FakeQuantSpec(x, attributes), 1, context});
    // L2 regularization is that of kernels.
    const bool l2 = x.layout == Layout::Filter();
    cases.push_back(
        {"fake_quant_backward_" + name, FakeQuantBackwardSpec(x, attributes, l2), 1, context});
  }
  const TensorSpec scalar = PlainSpec({});
  cases.push_back({"assign", {op::kAssign, {}, {scalar, scalar}, {scalar}}});
}

inline void AddFoldedBatchNorms(std::vector<ConformanceCase>& cases) {
  const struct {
    std::string name;
    FoldedBatchNormSizes sizes;
    int64_t valid_rows = 0;
  } rows[] = {
      {"plain", {.c = {3, 32, 5, 7}}},
      {"odd_channels", {.c = {2, 19, 6, 6}, .attributes = {.epsilon = 1e-5, .decay = 0.9}}},
      {"many_pixels", {.c = {2, 8, 40, 41}}},
      {"no_gamma", {.c = {2, 16, 4, 4}, .gamma = false}},
      {"no_gamma_no_beta", {.c = {2, 20, 4, 4}, .gamma = false, .beta = false}},
      {"recomputed", {.c = {2, 16, 4, 4}, .attributes = {.decay = 1}}},
      {"valid_rows", {.c = {4, 16, 3, 5}}, 3},
      {"valid_rows_odd", {.c = {4, 20, 3, 5}}, 1},
      {"matrix", {.c = {6, 10}}, 4},
  };
  for (const auto& [name, sizes, valid_rows] : rows) {
    const double terms = static_cast<double>(sizes.c.size() / sizes.c[1]);
    const RunContext context{.valid_rows = valid_rows};
    cases.push_back({"folded_batch_norm_" + name, FoldedBatchNormSpec(sizes), terms, context});
    cases.push_back(
        {"folded_batch_norm_backward_" + name, FoldedBatchNormBackwardSpec(sizes), terms, context});
    FoldedBatchNormSizes inference = sizes;
    inference.attributes.training = false;
    cases.push_back(
        {"folded_batch_norm_inference_" + name, FoldedBatchNormSpec(inference), 1, context});
  }
  constexpr auto kOut = kPosition<FoldedBatchNormBackwardOutputs>;
  for (const int absent : {kOut.dc, kOut.dz}) {
    OpSpec spec = FoldedBatchNormBackwardSpec({.c = {2, 20, 3, 3}});
    spec.outputs[absent] = AbsentSpec();
    cases.push_back({"folded_batch_norm_backward_without_" + std::to_string(absent), spec, 18});
  }
}

inline void AddFoldedWeights(std::vector<ConformanceCase>& cases) {
  const struct {
    std::string name;
    Shape w;
    bool gamma = true;
  } rows[] = {{"filter", {20, 6, 3, 3}},
              {"depthwise", {24, 1, 3, 3}},
              {"matrix", {11, 37}},
              {"large", {64, 2000}},
              {"no_gamma", {16, 4, 1, 1}, false}};
  for (const auto& [name, w, gamma] : rows) {
    cases.push_back({"fold_weights_" + name, FoldWeightsSpec(w, gamma)});
    cases.push_back({"fold_weights_backward_" + name, FoldWeightsBackwardSpec(w, gamma),
                     static_cast<double>(w.size() / w[0])});
  }
  OpSpec only_dgamma = FoldWeightsBackwardSpec({20, 3, 3, 3});
  only_dgamma.outputs[kPosition<FoldWeightsBackwardOutputs>.dw] = AbsentSpec();
  cases.push_back({"fold_weights_backward_only_dgamma", only_dgamma, 27});
}

// Changes the inputs of operations on quantized nets. Variances and deviations are positive.
inline void PrepareQuantization(const OpSpec& spec, std::vector<Elements>& inputs) {
  const auto change = [&](int input, auto f) {
    for (double& v : inputs[input]) v = f(v);
  };
  const auto positive = [](double v) { return std::abs(v) + 0.5; };
  if (spec.kind == op::kFakeQuant) {
    constexpr auto kQuant = kPosition<FakeQuantInputs>;
    for (const int i : {kQuant.min, kQuant.biased_min})
      change(i, [](double v) { return -std::abs(v); });
    for (const int i : {kQuant.max, kQuant.biased_max}) change(i, positive);
    change(kQuant.min_steps, [](double v) { return std::round(5 * std::abs(v)); });
    change(kQuant.max_steps, [](double v) { return std::round(50 * std::abs(v)); });
    change(kQuant.step, [](double) { return 3; });
  } else if (spec.kind == op::kFakeQuantBackward) {
    constexpr auto kQuant = kPosition<FakeQuantBackwardInputs>;
    change(kQuant.min, [](double v) { return -std::abs(v); });
    change(kQuant.max, positive);
    change(kQuant.step, [](double) { return 3; });
  } else if (spec.kind == op::kFoldWeights) {
    change(kPosition<FoldWeightsInputs>.moving_variance, positive);
  } else if (spec.kind == op::kFoldedBatchNorm) {
    change(kPosition<FoldedBatchNormInputs>.rm, positive);
    change(kPosition<FoldedBatchNormInputs>.moving_variance, positive);
  } else if (spec.kind == op::kFoldedBatchNormBackward) {
    change(kPosition<FoldedBatchNormBackwardInputs>.rm, positive);
    change(kPosition<FoldedBatchNormBackwardInputs>.rb, positive);
  }
}

}  // namespace carole::testing
