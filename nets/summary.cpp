#include "nets/summary.h"

#include <string_view>

namespace carole::nets {
namespace {

// Operations of one forward node; multiply and add are two.
int64_t Flops(const Graph& g, const Node& node) {
  const int64_t outputs = g.shape(node.outputs[0]).size();
  switch (node.kind) {
    case OpKind::kConv2d: {
      const Shape& w = g.shape(node.inputs[1]);
      return outputs * (2 * w[1] * w[2] * w[3] + (node.inputs[2] != kNone));
    }
    case OpKind::kLinear:
      return outputs * (2 * g.shape(node.inputs[1])[1] + (node.inputs[2] != kNone));
    case OpKind::kBatchNorm:
      return 2 * outputs;  // moving statistics, factor and term made beforehand
    case OpKind::kPool2d: {
      const auto& pool = std::get<Pool2dAttributes>(node.attributes);
      return outputs * pool.window_h * pool.window_w;
    }
    case OpKind::kLrn:
      return outputs * 2 * (2 * std::get<LrnAttributes>(node.attributes).radius + 2);
    case OpKind::kReshape:
      return 0;
    case OpKind::kSoftmax:
      return 3 * outputs;
    default:
      return outputs;
  }
}

int64_t Parameters(const Graph& g, const Node& node) {
  int64_t count = 0;
  for (ValueId id : node.inputs) {
    const int32_t variable = id == kNone ? kNone : g.value(id).variable;
    if (variable != kNone && g.variables()[variable].trainable) count += g.shape(id).size();
  }
  return count;
}

// Whether a node of this name belongs to the layer: the same scope, or the layer's batch norm.
bool Continues(std::string_view layer, std::string_view name) {
  return name.starts_with(layer) &&
         (name.size() == layer.size() || name.substr(layer.size()) == "/BatchNorm");
}

}  // namespace

NetSummary Summarize(const Graph& graph) {
  NetSummary summary;
  for (const Node& node : graph.nodes()) {
    if (node.kind == OpKind::kSoftmaxCrossEntropy || node.phase != Phase::kForward) continue;
    if (summary.layers.empty() || !Continues(summary.layers.back().name, node.name)) {
      summary.layers.push_back({.name = node.name, .kind = {}, .output = {}});
    }
    LayerRow& row = summary.layers.back();
    row.kind += (row.kind.empty() ? "" : "+") + std::string(Name(node.kind));
    row.output = graph.shape(node.outputs[0]);
    row.parameters += Parameters(graph, node);
    row.flops += Flops(graph, node);
  }
  for (const LayerRow& row : summary.layers) summary.flops += row.flops;
  const ParameterCount count = CountParameters(graph);
  summary.trainable = count.trainable;
  summary.statistics = count.statistics;
  return summary;
}

ParameterCount CountParameters(const Graph& graph) {
  ParameterCount count;
  for (const Variable& v : graph.variables()) {
    (v.trainable ? count.trainable : count.statistics) += v.shape.size();
  }
  return count;
}

}  // namespace carole::nets
