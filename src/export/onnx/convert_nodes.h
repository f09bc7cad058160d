// Converts the operations of a net to nodes of ONNX. Private to this room.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "src/export/common/exported_net.h"
#include "src/export/onnx/onnx_graph.h"

namespace carole::exporting {

// Appends the nodes for the net's logits and predictions. `images` is the name of the tensor
// (N,C,H,W) that the net reads. `add_weights(v, dims)` adds the tensor of a variable under its own
// name; the values that OnnxValues() returns have these dimensions. Returns the names of all
// values. Throws UsageError if an operation has no form in ONNX.
using AddOnnxWeights = std::function<void(const Variable& v, const std::vector<int64_t>& dims)>;
std::map<ValueId, std::string> ConvertNodes(const ExportedNet& net, const std::string& images,
                                            const AddOnnxWeights& add_weights, OnnxGraph& graph);

// Returns the values of a variable in the order of ONNX: filters (K,C/groups,R,S); matrices and
// vectors as in TensorFlow.
std::vector<float> OnnxValues(const ExportedNet& net, const Variable& variable);

}  // namespace carole::exporting
