// The parts that layers with weights share: biases, batch norm, activation (layers.h).
#include <algorithm>

#include "nets/layers/layers.h"
#include "src/ops/ops.h"

namespace carole::nets {
namespace {

constexpr double kMinEpsilon = 1.001e-5;  // of TensorFlow's fused batch norm

Variable ChannelVariable(const char* name, int64_t channels, double value) {
  return {.name = name,
          .tf_shape = {channels},
          .shape = {channels},
          .initializer = Initializer::Constant(value)};
}

ValueId AddWeight(NetBuilder& b, Variable variable, bool l2) {
  variable.l2_regularized = l2;
  return b.AddVariable(std::move(variable));
}

ValueId AddStatistic(NetBuilder& b, Variable variable) {
  variable.trainable = false;
  return b.AddVariable(std::move(variable));
}

}  // namespace

LayerOptions LayerOptions::Linear() const {
  LayerOptions linear = *this;
  linear.batch_norm.reset();
  linear.activation = Activation::kNone;
  return linear;
}

ValueId AddBiases(NetBuilder& b, int64_t outputs, const LayerOptions& options) {
  if (options.batch_norm || !options.has_biases) return kNone;
  return b.AddVariable({.name = options.biases_name,
                        .tf_shape = {outputs},
                        .shape = {outputs},
                        .initializer = options.biases,
                        .l2_regularized = options.l2_biases});
}

ValueId BatchNorm(NetBuilder& b, ValueId x, std::string_view name, const BatchNormOptions& options,
                  Activation activation) {
  const auto scope = b.Enter(name);
  const int64_t channels = b.shape(x)[1];
  BatchNormInputs<ValueId> in{.x = x};
  if (options.gamma) in.gamma = AddWeight(b, ChannelVariable("gamma", channels, 1), options.l2);
  in.beta = AddWeight(b, ChannelVariable("beta", channels, 0), options.l2);
  in.moving_mean = AddStatistic(b, ChannelVariable("moving_mean", channels, 0));
  in.moving_variance = AddStatistic(b, ChannelVariable("moving_variance", channels, 1));
  const ValueId y = ops::BatchNorm(
      b.graph(), in,
      {.epsilon = options.raise_epsilon ? std::max(options.epsilon, kMinEpsilon) : options.epsilon,
       .decay = b.BatchNormDecay(options.decay),
       .training = b.is_training()});
  return Activate(b, y, activation);
}

ValueId Activate(NetBuilder& b, ValueId x, Activation activation) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      return ops::Relu(b.graph(), x);
    case Activation::kRelu6:
      return ops::Relu(b.graph(), x, 6);
    case Activation::kHardSwish:
      return ops::HardSwish(b.graph(), x);
    case Activation::kHardSigmoid:
      return ops::HardSigmoid(b.graph(), x);
  }
  return x;
}

ValueId NormalizeAndActivate(NetBuilder& b, ValueId x, const LayerOptions& options) {
  if (options.batch_norm) x = BatchNorm(b, x, "BatchNorm", *options.batch_norm);
  return Activate(b, x, options.activation);
}

}  // namespace carole::nets
