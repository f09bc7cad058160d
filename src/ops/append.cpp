// Operations that their schemas describe completely (ops.h: Append()).
#include "src/core/check.h"
#include "src/ops/gradients.h"
#include "src/ops/ops.h"

namespace carole::ops {
namespace {

// The value that an input of the backward operation stands for: the gradient of an output, or an
// input or output of the forward operation.
ValueId ForwardValue(const GradientArgs& args, std::string_view name) {
  const OpSchema& forward = args.node.kind.schema();
  const auto at = [](const std::vector<ValueId>& values, int i) {
    return i < static_cast<int>(values.size()) ? values[i] : kNone;
  };
  if (const int i = forward.inputs.Find(name); i >= 0) return at(args.node.inputs, i);
  if (const int i = forward.outputs.Find(name); i >= 0) return at(args.node.outputs, i);
  const int i = name.starts_with('d') ? forward.outputs.Find(name.substr(1)) : -1;
  CAROLE_CHECK(i >= 0, "{}: {} of {} stands for nothing", args.node.name, name, forward.name);
  return args.dy[i];
}

}  // namespace

std::vector<ValueId> GradientByNames(const GradientArgs& args) {
  Graph& g = args.graph;
  const Node& node = args.node;
  const OpSchema& backward = *node.kind->backward;
  Node gradient{.kind = backward, .attributes = node.attributes};
  for (size_t i = 0; i < backward.inputs.size(); ++i)
    gradient.inputs.push_back(ForwardValue(args, backward.inputs[i].name));
  // Outputs after the last gradient of an input are for rewrites.
  std::vector<Graph::OutputShape> outputs;
  std::vector<int> output_of(node.inputs.size(), -1);
  for (size_t o = 0; o < backward.outputs.size(); ++o) {
    const int i = node.kind->inputs.Find(backward.outputs[o].name.substr(1));
    if (i < 0) break;
    const ValueId input = node.inputs[i];
    output_of[i] = static_cast<int>(o);
    outputs.push_back({input == kNone ? Shape() : g.shape(input), g.compute(), args.wanted[i]});
  }
  const std::vector<ValueId> made = g.AddNode(std::move(gradient), outputs).outputs;
  std::vector<ValueId> dx;
  for (const int o : output_of) dx.push_back(o < 0 ? kNone : made[o]);
  return dx;
}

ValueId Append(Graph& g, OpKind kind, const OpAttributes& attributes,
               const std::vector<ValueId>& inputs) {
  Node node{.kind = kind, .attributes = attributes, .inputs = inputs};
  if (kind->backward != nullptr) node.gradient = GradientByNames;
  if (kind->infer == nullptr) return g.AddResult(std::move(node), g.shape(inputs[0]));
  std::vector<Graph::OutputShape> outputs;
  for (const TensorSpec& t : kind->infer(g.Spec(node), g.scope()))
    outputs.push_back({t.shape, t.dtype, t.present});
  return g.AddNode(std::move(node), outputs).outputs[0];
}

}  // namespace carole::ops
