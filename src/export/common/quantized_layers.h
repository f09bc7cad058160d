// Functions for exports that find layers in a net with fake quantization
// (nets/quantization/quantize.h).
#pragma once

#include <map>
#include <string>

#include "src/graph/graph.h"

namespace carole::exporting {

// Returns the node of this kind that makes the value; null if none does.
const Node* FindProducer(const Graph& graph, ValueId value, OpKind kind);

// Finds the layers whose batch norms are folded. The keys are their folded weights and their
// results without bias. Their names are those of TF-Slim's operations: C, if the fake quantization
// of their weights is C/weights_quant.
std::map<ValueId, std::string> FindFoldedLayers(const Graph& graph);

// Whether the layer is the second part of a separable convolution: it reads a layer of the same
// name.
bool IsPointwise(const Graph& graph, const Node& layer);

}  // namespace carole::exporting
