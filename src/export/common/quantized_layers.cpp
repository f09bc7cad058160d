#include "src/export/common/quantized_layers.h"

#include "src/backend/ops/conv2d.h"
#include "src/backend/ops/fake_quant.h"
#include "src/backend/ops/folded_batch_norm.h"
#include "src/backend/ops/linear.h"

namespace carole::exporting {

const Node* FindProducer(const Graph& graph, ValueId value, OpKind kind) {
  const NodeId producer = graph.value(value).producer;
  if (producer == kNone) return nullptr;
  const Node& node = graph.nodes()[static_cast<size_t>(producer)];
  return node.kind == kind ? &node : nullptr;
}

std::map<ValueId, std::string> FindFoldedLayers(const Graph& graph) {
  static_assert(kPosition<Conv2dInputs>.w == kPosition<LinearInputs>.w);
  std::map<ValueId, std::string> layers;
  for (const Node& node : graph.nodes()) {
    if (node.kind != op::kConv2d && node.kind != op::kLinear) continue;
    const ValueId weights = node.inputs[kPosition<Conv2dInputs>.w];
    const Node* quant = FindProducer(graph, weights, op::kFakeQuant);
    if (quant == nullptr) continue;
    const ValueId folded = quant->inputs[kPosition<FakeQuantInputs>.x];
    if (FindProducer(graph, folded, op::kFoldWeights) == nullptr) continue;
    layers[folded] = layers[node.outputs[0]] = quant->name.substr(0, quant->name.rfind('/'));
  }
  return layers;
}

bool IsPointwise(const Graph& graph, const Node& layer) {
  ValueId x = layer.inputs[kPosition<Conv2dInputs>.x];
  if (const Node* quant = FindProducer(graph, x, op::kFakeQuant))
    x = quant->inputs[kPosition<FakeQuantInputs>.x];
  const Node* before = FindProducer(graph, x, op::kConv2d);
  return layer.kind == op::kConv2d && before != nullptr && before->name == layer.name;
}

}  // namespace carole::exporting
