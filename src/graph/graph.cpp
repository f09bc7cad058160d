#include "src/graph/graph.h"

#include "src/core/check.h"

namespace carole {

ValueId Graph::AddInput(const std::string& name, const Shape& shape, DType dtype) {
  values_.push_back({.shape = shape, .dtype = dtype, .name = name});
  return static_cast<ValueId>(values_.size() - 1);
}

ValueId Graph::AddVariable(Variable variable) {
  CAROLE_CHECK_EQ(variable.shape.size(), variable.tf_shape.size(), "variable {}", variable.name);
  values_.push_back({.shape = variable.shape,
                     .dtype = compute_,
                     .variable = static_cast<int32_t>(variables_.size()),
                     .name = variable.name});
  variable.value = static_cast<ValueId>(values_.size() - 1);
  variables_.push_back(std::move(variable));
  return variables_.back().value;
}

const Node& Graph::AddNode(Node node, const std::vector<OutputShape>& outputs) {
  const NodeId id = static_cast<NodeId>(nodes_.size());
  for (ValueId input : node.inputs) {
    CAROLE_CHECK(input >= kNone && input < num_values(), "{} {}: input {} is not a value",
                 Name(node.kind), node.name, input);
  }
  node.outputs.clear();
  for (const OutputShape& output : outputs) {
    if (!output.present) {
      node.outputs.push_back(kNone);
      continue;
    }
    node.outputs.push_back(static_cast<ValueId>(values_.size()));
    values_.push_back({.shape = output.shape, .dtype = output.dtype, .producer = id});
  }
  node.phase = phase_;
  if (node.name.empty()) node.name = scope_;
  nodes_.push_back(std::move(node));
  return nodes_.back();
}

ValueId Graph::AddOutput(NodeId node, const Shape& shape, DType dtype) {
  const ValueId id = num_values();
  values_.push_back({.shape = shape, .dtype = dtype, .producer = node});
  nodes_[node].outputs.push_back(id);
  return id;
}

void Graph::AddLoss(const std::string& name, ValueId value) {
  CAROLE_CHECK_EQ(shape(value), Shape{}, "loss {} must be a scalar", name);
  losses_.emplace_back(name, value);
  MarkOutput(value);
}

ValueId Graph::FindInput(std::string_view name) const {
  for (size_t i = 0; i < values_.size(); ++i) {
    const Value& v = values_[i];
    if (v.producer == kNone && v.variable == kNone && v.name == name)
      return static_cast<ValueId>(i);
  }
  return kNone;
}

ValueId Graph::input(const std::string& name) const {
  if (const ValueId id = FindInput(name); id != kNone) return id;
  throw InternalError("[graph] no input has the name " + name);
}

OpSpec Graph::Spec(const Node& node) const {
  OpSpec spec{.kind = node.kind, .attributes = node.attributes};
  auto describe = [&](ValueId id) {
    if (id == kNone)
      return TensorSpec{.shape = {}, .dtype = compute_, .layout = {}, .present = false};
    return TensorSpec{.shape = shape(id), .dtype = value(id).dtype, .layout = {}, .present = true};
  };
  for (ValueId id : node.inputs) spec.inputs.push_back(describe(id));
  for (ValueId id : node.outputs) spec.outputs.push_back(describe(id));
  return spec;
}

}  // namespace carole
