// Functions that make OpSpecs in plain layouts, for tests. Activations are NHWC in memory, filters
// (R,S,C,K).
#pragma once

#include <vector>

#include "src/backend/ops/batch_norm.h"
#include "src/backend/ops/concat.h"
#include "src/backend/ops/conv2d.h"
#include "src/backend/ops/fake_quant.h"
#include "src/backend/ops/folded_batch_norm.h"
#include "src/backend/ops/layer_norm.h"
#include "src/backend/ops/linear.h"
#include "src/backend/ops/normalize.h"
#include "src/backend/ops/op.h"
#include "src/backend/ops/pad2d.h"
#include "src/backend/ops/pool2d.h"
#include "src/backend/ops/scale_channels.h"
#include "src/backend/ops/softmax.h"
#include "src/backend/ops/window.h"
#include "src/core/rng.h"

namespace carole::testing {

inline TensorSpec PlainSpec(const Shape& shape, DType dtype = DType::kF32) {
  return {shape, dtype, Layout::PlainActivation(shape)};
}
inline TensorSpec FilterSpec(const Shape& shape) { return {shape, DType::kF32, Layout::Filter()}; }
inline TensorSpec AbsentSpec() {
  return {.shape = {}, .layout = Layout::RowMajor(), .present = false};
}
inline TensorSpec OptionalSpec(const Shape& shape, bool present) {
  return present ? PlainSpec(shape) : AbsentSpec();
}

// The same operation in double.
inline OpSpec InDouble(OpSpec spec) {
  for (auto* tensors : {&spec.inputs, &spec.outputs}) {
    for (TensorSpec& t : *tensors) {
      if (t.dtype == DType::kF32) t.dtype = DType::kF64;
    }
  }
  return spec;
}

// The same operation with activations and filters stored in a 16-bit type.
inline OpSpec InNarrow(OpSpec spec, DType type) {
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    TensorSpec& t = spec.inputs[i];
    const bool narrow = IsActivationInput(spec.kind, i) || IsFilterInput(spec.kind, i);
    if (narrow && t.dtype == DType::kF32) t.dtype = type;
  }
  for (size_t o = 0; o < spec.outputs.size(); ++o) {
    TensorSpec& t = spec.outputs[o];
    if (IsActivationOutput(spec.kind, o) && t.dtype == DType::kF32) t.dtype = type;
  }
  return spec;
}

// The sizes and options of a convolution.
struct ConvSizes {
  Shape x;
  int64_t k = 1, r = 1, s = 1;
  Conv2dAttributes attributes;
  bool bias = false, residual = false;
  // Fuses a ReLU's backward: it masks dx of the data gradient, or dy of the filter gradient.
  bool relu_mask = false;

  Shape w() const { return {k, x[1] / attributes.groups, r, s}; }
  Shape y() const {
    const auto& a = attributes;
    const auto taps = [&](int64_t n) { return (n - 1) * a.dilation + 1; };
    return {x[0], k, WindowOutput(x[2], a.padding.top, a.padding.bottom, taps(r), a.stride_h),
            WindowOutput(x[3], a.padding.left, a.padding.right, taps(s), a.stride_w)};
  }
};

// Rows and columns of a filter. A single number stands for both.
struct Window {
  Window(int64_t n) : r(n), s(n) {}
  Window(int64_t r, int64_t s) : r(r), s(s) {}
  int64_t r, s;
};
// Optional inputs of a convolution.
struct ConvOptions {
  bool bias = false, residual = false, relu_mask = false;
};
inline ConvSizes Conv(const Shape& x, int64_t k, const Window& window,
                      const Conv2dAttributes& a = {}, const ConvOptions& options = {}) {
  return {x, k, window.r, window.s, a, options.bias, options.residual, options.relu_mask};
}
// Padding of n pixels on all sides.
constexpr Padding Around(int64_t n) { return {n, n, n, n}; }

inline OpSpec Conv2dSpec(const ConvSizes& c) {
  OpSpec spec{op::kConv2d,
              c.attributes,
              {PlainSpec(c.x), FilterSpec(c.w()), OptionalSpec({c.k}, c.bias)},
              {PlainSpec(c.y())}};
  if (c.residual) spec.inputs.push_back(PlainSpec(c.y()));
  return spec;
}
inline OpSpec Conv2dBackwardDataSpec(ConvSizes c) {
  c.attributes.relu = false;
  OpSpec spec{op::kConv2dBackwardData,
              c.attributes,
              {PlainSpec(c.y()), FilterSpec(c.w())},
              {PlainSpec(c.x)}};
  if (c.relu_mask) spec.inputs.push_back(PlainSpec(c.x));
  if (c.relu_mask && c.bias) spec.outputs.push_back(PlainSpec({c.x[1]}));
  return spec;
}
inline OpSpec Conv2dBackwardFilterSpec(ConvSizes c) {
  c.attributes.relu = false;
  OpSpec spec{op::kConv2dBackwardFilter,
              c.attributes,
              {PlainSpec(c.x), PlainSpec(c.y())},
              {FilterSpec(c.w()), OptionalSpec({c.k}, c.bias)}};
  if (c.relu_mask) spec.inputs.push_back(PlainSpec(c.y()));
  return spec;
}

struct LinearSizes {
  int64_t n = 1, c = 1, k = 1;
  bool bias = false, relu = false;
};

inline OpSpec LinearSpec(const LinearSizes& l) {
  return {op::kLinear,
          LinearAttributes{.relu = l.relu},
          {PlainSpec({l.n, l.c}), FilterSpec({l.k, l.c}), OptionalSpec({l.k}, l.bias)},
          {PlainSpec({l.n, l.k})}};
}
inline OpSpec LinearBackwardDataSpec(const LinearSizes& l) {
  return {op::kLinearBackwardData,
          LinearAttributes{},
          {PlainSpec({l.n, l.k}), FilterSpec({l.k, l.c})},
          {PlainSpec({l.n, l.c})}};
}
inline OpSpec LinearBackwardFilterSpec(const LinearSizes& l) {
  return {op::kLinearBackwardFilter,
          LinearAttributes{},
          {PlainSpec({l.n, l.c}), PlainSpec({l.n, l.k})},
          {FilterSpec({l.k, l.c}), OptionalSpec({l.k}, l.bias)}};
}

// The first convolutions of nets.
inline ConvSizes ResNetStem(int64_t batch) {
  return Conv({batch, 3, 224, 224}, 64, 7, {.stride_h = 2, .stride_w = 2, .padding = Around(3)});
}
inline ConvSizes InceptionStem(int64_t batch) {
  return Conv({batch, 3, 299, 299}, 32, 3, {.stride_h = 2, .stride_w = 2});
}
inline ConvSizes MobileNetStem(int64_t batch) {
  return Conv({batch, 3, 224, 224}, 32, 3, {.stride_h = 2, .stride_w = 2, .padding = {0, 0, 1, 1}});
}
inline ConvSizes VggStem(int64_t batch) {
  return Conv({batch, 3, 224, 224}, 64, 3, {.padding = Around(1)});
}

// The sizes and options of a batch norm.
struct BatchNormSizes {
  Shape x;
  bool gamma = true, beta = true, residual = false;
  bool dy2 = false;     // backward: a second gradient of y; only with a residual
  bool addend = false;  // backward: added to dx
  BatchNormAttributes attributes;
  int64_t dy_channels = 0;    // backward: channels of dy; 0: as many as x has
  bool relu_bitmask = false;  // forward writes it, backward reads it instead of y
};

inline void AddReluBitmask(const BatchNormSizes& b, std::vector<TensorSpec>& tensors) {
  if (b.relu_bitmask) tensors.push_back({ReluBitmaskShape(b.x), DType::kU8, Layout::Nhwc()});
}
inline OpSpec BatchNormSpec(const BatchNormSizes& b) {
  const Shape c{b.x[1]};
  const bool training = b.attributes.training;
  OpSpec spec{op::kBatchNorm,
              b.attributes,
              {PlainSpec(b.x), OptionalSpec(c, b.gamma), OptionalSpec(c, b.beta),
               OptionalSpec(b.x, b.residual), PlainSpec(c), PlainSpec(c)},
              {PlainSpec(b.x), OptionalSpec(c, training), OptionalSpec(c, training)}};
  AddReluBitmask(b, spec.outputs);
  return spec;
}
inline OpSpec BatchNormBackwardSpec(const BatchNormSizes& b) {
  const Shape c{b.x[1]};
  const bool needs_y = b.residual && b.attributes.relu && !b.relu_bitmask;
  Shape dy = b.x;
  if (b.dy_channels > 0) dy[1] = b.dy_channels;
  OpSpec spec{op::kBatchNormBackward,
              b.attributes,
              {PlainSpec(dy), PlainSpec(b.x), OptionalSpec(b.x, needs_y), OptionalSpec(c, b.gamma),
               OptionalSpec(c, b.beta), PlainSpec(c), PlainSpec(c), OptionalSpec(b.x, b.dy2),
               OptionalSpec(b.x, b.addend)},
              {PlainSpec(b.x), OptionalSpec(c, b.gamma), OptionalSpec(c, b.beta),
               OptionalSpec(b.x, b.residual)}};
  AddReluBitmask(b, spec.inputs);
  return spec;
}

// The sizes of a layer norm.
struct LayerNormSizes {
  Shape x;
  bool gamma = true, beta = true;
  bool dx = true;  // backward
};

inline OpSpec LayerNormSpec(const LayerNormSizes& l, const LayerNormAttributes& a = {}) {
  const Shape c{l.x[1]};
  return {op::kLayerNorm,
          a,
          List(LayerNormInputs<TensorSpec>{PlainSpec(l.x), OptionalSpec(c, l.gamma),
                                           OptionalSpec(c, l.beta)}),
          {PlainSpec(l.x)}};
}
inline OpSpec LayerNormBackwardSpec(const LayerNormSizes& l, const LayerNormAttributes& a = {}) {
  const Shape c{l.x[1]};
  return {op::kLayerNormBackward, a,
          List(LayerNormBackwardInputs<TensorSpec>{PlainSpec(l.x), PlainSpec(l.x),
                                                   OptionalSpec(c, l.gamma)}),
          List(LayerNormBackwardOutputs<TensorSpec>{
              OptionalSpec(l.x, l.dx), OptionalSpec(c, l.gamma), OptionalSpec(c, l.beta)})};
}

// Fake quantization of a tensor in a plain layout. There is a step if there is a delay. `l2` is
// whether there is an L2 regularization.
inline OpSpec FakeQuantSpec(const TensorSpec& x, const FakeQuantAttributes& a, bool l2 = false) {
  const TensorSpec scalar = PlainSpec({}), step = OptionalSpec({}, a.delay > 0);
  const TensorSpec average = OptionalSpec({}, a.range == FakeQuantAttributes::Range::kAverage);
  return {op::kFakeQuant,
          a,
          List(FakeQuantInputs<TensorSpec>{.x = x,
                                           .min = scalar,
                                           .max = scalar,
                                           .biased_min = average,
                                           .min_steps = average,
                                           .biased_max = average,
                                           .max_steps = average,
                                           .step = step,
                                           .l2_weight = OptionalSpec({}, l2)}),
          {x}};
}
inline OpSpec FakeQuantBackwardSpec(const TensorSpec& x, const FakeQuantAttributes& a,
                                    bool l2 = false) {
  const TensorSpec scalar = PlainSpec({});
  return {op::kFakeQuantBackward,
          a,
          List(FakeQuantBackwardInputs<TensorSpec>{.dy = x,
                                                   .x = x,
                                                   .min = scalar,
                                                   .max = scalar,
                                                   .step = OptionalSpec({}, a.delay > 0),
                                                   .l2_weight = OptionalSpec({}, l2)}),
          {x}};
}

// Folding of a batch norm into weights w (K,...).
inline OpSpec FoldWeightsSpec(const Shape& w, bool gamma = true) {
  const Shape k{w[0]};
  return {
      op::kFoldWeights, FoldedBatchNormAttributes{},
      List(FoldWeightsInputs<TensorSpec>{
          .w = FilterSpec(w), .gamma = OptionalSpec(k, gamma), .moving_variance = PlainSpec(k)}),
      List(FoldWeightsOutputs<TensorSpec>{.folded = FilterSpec(w), .rm = PlainSpec(k)})};
}
inline OpSpec FoldWeightsBackwardSpec(const Shape& w, bool gamma = true) {
  const Shape k{w[0]};
  return {op::kFoldWeightsBackward, FoldedBatchNormAttributes{},
          List(FoldWeightsBackwardInputs<TensorSpec>{.dfolded = FilterSpec(w),
                                                     .w = FilterSpec(w),
                                                     .gamma = OptionalSpec(k, gamma),
                                                     .rm = PlainSpec(k)}),
          List(FoldWeightsBackwardOutputs<TensorSpec>{.dw = FilterSpec(w),
                                                      .dgamma = OptionalSpec(k, gamma)})};
}

// The sizes and options of a folded batch norm.
struct FoldedBatchNormSizes {
  Shape c;
  bool gamma = true, beta = true;
  FoldedBatchNormAttributes attributes;
};
inline OpSpec FoldedBatchNormSpec(const FoldedBatchNormSizes& b) {
  const Shape k{b.c[1]};
  const bool training = b.attributes.training;
  return {op::kFoldedBatchNorm, b.attributes,
          List(FoldedBatchNormInputs<TensorSpec>{.c = PlainSpec(b.c),
                                                 .z = OptionalSpec(b.c, training),
                                                 .gamma = OptionalSpec(k, b.gamma),
                                                 .beta = OptionalSpec(k, b.beta),
                                                 .rm = PlainSpec(k),
                                                 .moving_mean = PlainSpec(k),
                                                 .moving_variance = PlainSpec(k)}),
          List(FoldedBatchNormOutputs<TensorSpec>{.y = PlainSpec(b.c),
                                                  .mean = OptionalSpec(k, training),
                                                  .rb = OptionalSpec(k, training)})};
}
inline OpSpec FoldedBatchNormBackwardSpec(const FoldedBatchNormSizes& b) {
  const Shape k{b.c[1]};
  return {op::kFoldedBatchNormBackward, b.attributes,
          List(FoldedBatchNormBackwardInputs<TensorSpec>{.dy = PlainSpec(b.c),
                                                         .c = PlainSpec(b.c),
                                                         .z = PlainSpec(b.c),
                                                         .gamma = OptionalSpec(k, b.gamma),
                                                         .rm = PlainSpec(k),
                                                         .mean = PlainSpec(k),
                                                         .rb = PlainSpec(k)}),
          List(FoldedBatchNormBackwardOutputs<TensorSpec>{.dc = PlainSpec(b.c),
                                                          .dz = PlainSpec(b.c),
                                                          .dgamma = OptionalSpec(k, b.gamma),
                                                          .dbeta = OptionalSpec(k, b.beta)})};
}

struct PoolSizes {
  Shape x;
  Pool2dAttributes attributes;

  bool is_max() const { return attributes.mode == Pool2dAttributes::Mode::kMax; }
  Shape y() const {
    const auto& a = attributes;
    return {x[0], x[1], WindowOutput(x[2], a.padding.top, a.padding.bottom, a.window_h, a.stride_h),
            WindowOutput(x[3], a.padding.left, a.padding.right, a.window_w, a.stride_w)};
  }
  TensorSpec argmax() const { return is_max() ? PlainSpec(y(), DType::kI32) : AbsentSpec(); }
};

inline OpSpec Pool2dSpec(const PoolSizes& p) {
  return {op::kPool2d, p.attributes, {PlainSpec(p.x)}, {PlainSpec(p.y()), p.argmax()}};
}
inline OpSpec Pool2dBackwardSpec(const PoolSizes& p) {
  return {op::kPool2dBackward, p.attributes, {PlainSpec(p.y()), p.argmax()}, {PlainSpec(p.x)}};
}

// An operation whose inputs and single output all have one shape.
inline OpSpec SameShapeSpec(OpKind kind, OpAttributes attributes, const Shape& shape, int inputs) {
  return {kind, attributes, std::vector<TensorSpec>(inputs, PlainSpec(shape)), {PlainSpec(shape)}};
}

// A concatenation of x_i (N,C_i,H,W), where `channels` lists the C_i.
inline OpSpec ConcatSpec(Shape x, const std::vector<int64_t>& channels) {
  OpSpec spec{op::kConcat, {}, {}, {}};
  int64_t sum = 0;
  for (int64_t c : channels) {
    x[1] = c;
    spec.inputs.push_back(PlainSpec(x));
    sum += c;
  }
  x[1] = sum;
  spec.outputs = {PlainSpec(x)};
  return spec;
}
inline OpSpec SliceSpec(const Shape& x, int64_t begin, int64_t channels) {
  Shape y = x;
  y[1] = channels;
  return {op::kSlice, SliceAttributes{begin}, {PlainSpec(x)}, {PlainSpec(y)}};
}
inline OpSpec Pad2dSpec(const Shape& x, const Padding& p) {
  const Shape y{x[0], x[1], p.top + x[2] + p.bottom, p.left + x[3] + p.right};
  return {op::kPad2d, Pad2dAttributes{p}, {PlainSpec(x)}, {PlainSpec(y)}};
}
inline OpSpec NormalizeSpec(const Shape& x, const NormalizeAttributes& a) {
  return {op::kNormalize, a, {PlainSpec(x, DType::kU8)}, {PlainSpec(x)}};
}
inline OpSpec ScaleChannelsSpec(const Shape& x) {
  return {op::kScaleChannels, {}, {PlainSpec(x), PlainSpec({x[0], x[1], 1, 1})}, {PlainSpec(x)}};
}
inline OpSpec ScaleChannelsBackwardSpec(const Shape& x) {
  const TensorSpec scale = PlainSpec({x[0], x[1], 1, 1});
  return {
      op::kScaleChannelsBackward, {}, {PlainSpec(x), PlainSpec(x), scale}, {PlainSpec(x), scale}};
}

inline OpSpec CrossEntropySpec(int64_t n, int64_t k, const SoftmaxCrossEntropyAttributes& a) {
  return {op::kSoftmaxCrossEntropy,
          a,
          {PlainSpec({n, k}), PlainSpec({n}, DType::kI32), PlainSpec({n})},
          {PlainSpec({}), PlainSpec({n, k})}};
}

// The same with soft labels.
inline OpSpec SoftCrossEntropySpec(int64_t n, int64_t k, const SoftmaxCrossEntropyAttributes& a) {
  OpSpec spec = CrossEntropySpec(n, k, a);
  spec.inputs[1] = PlainSpec({n, k});
  return spec;
}

// Normally distributed numbers, rounded to fp32 so that fp32 and double use the same ones.
inline std::vector<double> RandomElements(int64_t count, uint64_t seed) {
  Rng rng(seed, RngPurpose::kData);
  std::vector<double> values(count);
  for (double& v : values) v = static_cast<float>(rng.NextNormal());
  return values;
}

}  // namespace carole::testing
