#include "src/graph/precision.h"

#include "src/graph/schedule.h"

namespace carole {

void StoreActivationsAs(DType dtype, Graph& graph) {
  if (dtype == DType::kF32) return;
  CAROLE_CHECK(graph.compute() == DType::kF32, "{} activations with variables of {}", Name(dtype),
               Name(graph.compute()));
  // Reshaped values share memory with their source, so they have its type.
  const std::vector<ValueId> owners = MemoryOwners(graph);
  std::vector<bool> wide(graph.num_values(), false);
  for (ValueId id : graph.outputs()) {
    if (owners[id] != kNone) wide[owners[id]] = true;
  }
  std::vector<bool> narrow(graph.num_values(), false);
  for (const Node& node : graph.nodes()) {
    for (size_t o = 0; !node.dead && o < node.outputs.size(); ++o) {
      const ValueId id = node.outputs[o];
      if (id == kNone || owners[id] != id || wide[id]) continue;
      narrow[id] = graph.value(id).dtype == DType::kF32 && IsActivationOutput(node.kind, o);
    }
  }
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    if (owners[id] != kNone && narrow[owners[id]]) graph.SetDType(id, dtype);
  }
}

void UnifyTypes(OpSpec& spec) {
  DType type = DType::kF32;
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    if (IsActivationInput(spec.kind, i) && IsNarrow(spec.inputs[i].dtype))
      type = spec.inputs[i].dtype;
  }
  for (size_t o = 0; o < spec.outputs.size(); ++o) {
    if (IsActivationOutput(spec.kind, o) && IsNarrow(spec.outputs[o].dtype))
      type = spec.outputs[o].dtype;
  }
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    const bool multiplied = IsActivationInput(spec.kind, i) || IsFilterInput(spec.kind, i);
    if (multiplied && spec.inputs[i].dtype == DType::kF32) spec.inputs[i].dtype = type;
  }
}

void WidenToFp32(OpSpec& spec) {
  for (auto* tensors : {&spec.inputs, &spec.outputs}) {
    for (TensorSpec& t : *tensors) {
      if (IsNarrow(t.dtype)) t.dtype = DType::kF32;
    }
  }
}

}  // namespace carole
