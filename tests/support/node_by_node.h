// Runs a graph one node at a time, with plain layouts and separate memory for every value. It is
// the oracle of the Executable and shares no code with it.
#pragma once

#include <vector>

#include "src/backend/ops/conv2d.h"
#include "src/backend/ops/copies.h"
#include "src/backend/ops/linear.h"
#include "src/graph/graph.h"
#include "tests/support/graph_runner.h"
#include "tests/support/op_runner.h"

namespace carole::testing {

class NodeByNode {
 public:
  NodeByNode(const Graph& graph, const Backend& backend)
      : graph_(graph), backend_(backend), values_(static_cast<size_t>(graph.num_values())) {
    for (ValueId id = 0; id < graph.num_values(); ++id) {
      const Value& v = graph.value(id);
      const bool variable = v.variable != kNone;
      layouts_.push_back(variable ? graph.variables()[v.variable].plain_layout()
                                  : Layout::PlainActivation(v.shape));
      if (v.producer != kNone) continue;
      values_[id] = variable ? VariableElements(graph.variables()[v.variable]) : InputElements(v);
    }
  }

  GraphResult Run(const RunContext& context = {}) {
    for (const Node& node : graph_.nodes()) {
      if (node.dead) continue;
      if (node.kind == op::kReshape) {
        values_[node.outputs[0]] = values_[node.inputs[0]];
      } else {
        RunNode(node, context);
      }
    }
    GraphResult result;
    for (ValueId id : graph_.outputs()) result.outputs.push_back(values_[id]);
    for (const Variable& v : graph_.variables()) {
      if (v.gradient != kNone) result.gradients[v.name] = values_[v.gradient];
      if (!v.trainable) result.statistics[v.name] = values_[v.value];
    }
    return result;
  }

 private:
  // Gradients of variables have the layout of their variable.
  Layout LayoutOf(const Node& node, size_t output) const {
    const bool filter =
        node.kind == op::kConv2dBackwardFilter || node.kind == op::kLinearBackwardFilter;
    if (filter && output == 0) return Layout::Filter();
    for (const Variable& v : graph_.variables()) {
      if (v.gradient == node.outputs[output]) return v.plain_layout();
    }
    return layouts_[node.outputs[output]];
  }

  void RunNode(const Node& node, const RunContext& context) {
    OpSpec spec = graph_.Spec(node);
    std::vector<Elements> inputs(node.inputs.size()), state;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (node.inputs[i] == kNone) continue;
      inputs[i] = values_[node.inputs[i]];
      spec.inputs[i].layout = layouts_[node.inputs[i]];
    }
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      if (node.outputs[o] == kNone) continue;
      spec.outputs[o].layout = layouts_[node.outputs[o]] = LayoutOf(node, o);
    }
    const std::vector<Elements> outputs = RunPlain(backend_, spec, inputs, context, &state);
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (node.outputs[o] != kNone) values_[node.outputs[o]] = outputs[o];
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (IsState(spec, i)) values_[node.inputs[i]] = state[i];
    }
  }

  const Graph& graph_;
  const Backend& backend_;
  std::vector<Elements> values_;
  std::vector<Layout> layouts_;
};

}  // namespace carole::testing
