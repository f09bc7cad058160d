// The values of variables and of quantized weights in ONNX's order: filters are (K,C/groups,R,S),
// matrices and vectors are as in TensorFlow. Private to this room.
#pragma once

#include <vector>

#include "src/backend/ops/fake_quant.h"
#include "src/export/common/exported_net.h"
#include "src/export/onnx/onnx_graph.h"

namespace carole::exporting {

// Returns the tensor of a variable under its own name. `net` must outlive it, here and below.
OnnxWeights FloatWeights(const ExportedNet& net, const Variable& variable);

// Whether the value is a variable, or a variable into which a batch norm is folded.
bool AreWeights(const Graph& graph, ValueId value);

// Returns the range of fake quantization. Throws DataError if it does not contain 0.
QuantGrid<float> GridOf(const ExportedNet& net, const Node& fake_quant);

// Returns the codes of weights as a tensor of uint8, "VARIABLE_quantized". If the range is empty,
// all codes are 0.
OnnxWeights QuantizedWeights(const ExportedNet& net, const Node& fake_quant);

// Returns the bias of a layer with a folded batch norm: beta - mean * gamma / sqrt(variance +
// epsilon).
std::vector<float> FoldedBias(const ExportedNet& net, const Node& folded_batch_norm);

}  // namespace carole::exporting
