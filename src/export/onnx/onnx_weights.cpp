#include "src/export/onnx/onnx_weights.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "src/backend/ops/folded_batch_norm.h"
#include "src/core/check.h"
#include "src/core/error.h"
#include "src/export/common/quantized_layers.h"

namespace carole::exporting {
namespace {

const Variable* VariableOf(const Graph& graph, ValueId value) {
  const int32_t variable = value == kNone ? kNone : graph.value(value).variable;
  return variable == kNone ? nullptr : &graph.variables()[static_cast<size_t>(variable)];
}

// Returns the values of a node's input. If the input is absent, returns `count` times `other`.
std::vector<float> ReadOr(const ExportedNet& net, ValueId value, float other, size_t count) {
  const Variable* v = VariableOf(net.graph, value);
  return v != nullptr ? net.read(*v) : std::vector<float>(count, other);
}

std::vector<int64_t> DimsOf(const Variable& v) {
  const Shape& shape = v.shape.rank() == 4 ? v.shape : v.tf_shape;
  return {shape.dims().begin(), shape.dims().end()};
}

// Returns a filter in ONNX's order. TensorFlow's filters are (R,S,C,K), those of depthwise
// convolutions are (R,S,C,M) with K = C * M. In both, the output channel is in the fastest
// dimensions: K or (C,M). A depthwise filter has one input channel for each output channel.
std::vector<float> Reorder(std::vector<float> values, const Variable& variable) {
  if (variable.shape.rank() != 4) return values;
  const Shape& s = variable.shape;
  const int64_t outputs = s[0], inputs = s[1], pixels = s[2] * s[3];
  std::vector<float> ordered(values.size());
  const float* from = values.data();
  for (int64_t pixel = 0; pixel < pixels; ++pixel) {
    for (int64_t c = 0; c < inputs; ++c) {
      for (int64_t k = 0; k < outputs; ++k)
        ordered[static_cast<size_t>((k * inputs + c) * pixels + pixel)] = *from++;
    }
  }
  return ordered;
}

// gamma / sqrt(variance + epsilon) of each channel, rounded as the backends do it.
std::vector<float> FoldedFactors(const ExportedNet& net, const Node& fold) {
  const auto in = Named<FoldWeightsInputs>(fold.inputs);
  const double epsilon = fold.attributes.as<FoldedBatchNormAttributes>().epsilon;
  std::vector<float> factors = net.read(*VariableOf(net.graph, in.moving_variance));
  const std::vector<float> gamma = ReadOr(net, in.gamma, 1, factors.size());
  for (size_t k = 0; k < factors.size(); ++k) {
    const double variance = double{factors[k]} + epsilon;
    if (!(variance > 0)) {
      throw DataError(
          fmt::format("[export] {}: variance: got {}, want a positive number; use "
                      "another checkpoint",
                      fold.name, factors[k]));
    }
    factors[k] = gamma[k] * static_cast<float>(1 / std::sqrt(variance));
  }
  return factors;
}

// The variable whose values are quantized.
const Variable& QuantizedVariable(const Graph& graph, const Node& fake_quant) {
  const ValueId x = fake_quant.inputs[kPosition<FakeQuantInputs>.x];
  const Node* fold = FindProducer(graph, x, op::kFoldWeights);
  const ValueId w = fold != nullptr ? fold->inputs[kPosition<FoldWeightsInputs>.w] : x;
  return *VariableOf(graph, w);
}

// The output channel is the fastest dimension of TensorFlow's weights.
std::vector<float> ReadQuantizedVariable(const ExportedNet& net, const Node& fake_quant) {
  const Variable& variable = QuantizedVariable(net.graph, fake_quant);
  std::vector<float> values = net.read(variable);
  const Node* fold =
      FindProducer(net.graph, fake_quant.inputs[kPosition<FakeQuantInputs>.x], op::kFoldWeights);
  if (fold != nullptr) {
    const std::vector<float> factors = FoldedFactors(net, *fold);
    for (size_t i = 0; i < values.size(); ++i) values[i] *= factors[i % factors.size()];
  }
  return Reorder(std::move(values), variable);
}

// Rounded values are multiples of the scale.
std::string CodesOf(const std::vector<float>& values, const QuantGrid<float>& grid) {
  std::string codes(values.size(), '\0');
  if (grid.is_empty()) return codes;
  for (size_t i = 0; i < values.size(); ++i) {
    const float code = grid.zero_point + std::round(grid.Round(values[i]) / grid.scale);
    codes[i] = static_cast<char>(static_cast<uint8_t>(code));
  }
  return codes;
}

}  // namespace

OnnxWeights FloatWeights(const ExportedNet& net, const Variable& v) {
  return {v.name, OnnxType::kFloat, DimsOf(v),
          [&net, &v](Sink& sink) { sink.Append(BytesOf(Reorder(net.read(v), v))); }};
}

bool AreWeights(const Graph& graph, ValueId value) {
  return VariableOf(graph, value) != nullptr ||
         FindProducer(graph, value, op::kFoldWeights) != nullptr;
}

QuantGrid<float> GridOf(const ExportedNet& net, const Node& fake_quant) {
  const auto in = Named<FakeQuantInputs>(fake_quant.inputs);
  const auto& a = fake_quant.attributes.as<FakeQuantAttributes>();
  CAROLE_CHECK_EQ(a.bits, 8, "{}: bits", fake_quant.name);
  const auto read = [&](ValueId value) { return net.read(*VariableOf(net.graph, value)).at(0); };
  const float min = read(in.min), max = read(in.max);
  if (min > 0 || max < 0) {
    throw DataError(
        fmt::format("[export] {}: wrong range: got {} to {}, want one that contains 0; "
                    "use another checkpoint",
                    fake_quant.name, min, max));
  }
  return {min, max, static_cast<float>(a.smallest_code()), static_cast<float>(a.largest_code())};
}

OnnxWeights QuantizedWeights(const ExportedNet& net, const Node& fake_quant) {
  const Variable& v = QuantizedVariable(net.graph, fake_quant);
  return {v.name + "_quantized", OnnxType::kUint8, DimsOf(v), [&net, &fake_quant](Sink& sink) {
            sink.Append(CodesOf(ReadQuantizedVariable(net, fake_quant), GridOf(net, fake_quant)));
          }};
}

std::vector<float> FoldedBias(const ExportedNet& net, const Node& folded_batch_norm) {
  const auto in = Named<FoldedBatchNormInputs>(folded_batch_norm.inputs);
  CAROLE_CHECK(!folded_batch_norm.attributes.as<FoldedBatchNormAttributes>().training, "{}: trains",
               folded_batch_norm.name);
  const Node& fold = *FindProducer(net.graph, in.rm, op::kFoldWeights);
  const std::vector<float> factors = FoldedFactors(net, fold);
  const std::vector<float> mean = net.read(*VariableOf(net.graph, in.moving_mean));
  std::vector<float> bias = ReadOr(net, in.beta, 0, factors.size());
  for (size_t k = 0; k < bias.size(); ++k) bias[k] -= mean[k] * factors[k];
  return bias;
}

}  // namespace carole::exporting
