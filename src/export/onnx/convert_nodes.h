// Converts the operations of a net to nodes of ONNX. Private to this room.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "src/export/common/exported_net.h"
#include "src/export/onnx/onnx_graph.h"

namespace carole::exporting {

// Appends the nodes for the net's logits and predictions. `images` is the name of the tensor
// (N,C,H,W) that the net reads. `add_weights` adds the tensor of a variable, or of weights that are
// quantized, to the graph. Returns the names of all values. `net` must outlive the graph. Throws
// UsageError if an operation has no form in ONNX.
//
// Fake quantization becomes QuantizeLinear and DequantizeLinear. Quantized weights are stored as
// codes of type uint8. Batch norms that are folded into them become the bias of their layer.
using AddOnnxWeights = std::function<void(const OnnxWeights& weights)>;
std::map<ValueId, std::string> ConvertNodes(const ExportedNet& net, const std::string& images,
                                            const AddOnnxWeights& add_weights, OnnxGraph& graph);

}  // namespace carole::exporting
