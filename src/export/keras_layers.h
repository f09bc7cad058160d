// Converts the operations of a graph to layers of Keras. Private to keras_model.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/graph/graph.h"

namespace carole::train {

// One layer of a Keras model, called once.
struct KerasNode {
  std::string class_name, name;
  nlohmann::ordered_json config;
  std::vector<int> inputs;  // indices of nodes, all before this one
  bool has_weights = false;
};

// Thrown if Keras has no layer for an operation.
struct NoKerasLayer {
  std::string operation;
};

// Returns the layers from the input "images", which is first, to a softmax of `logits`, which is
// last. Throws NoKerasLayer.
std::vector<KerasNode> ConvertToKeras(const Graph& graph, ValueId logits);

}  // namespace carole::train
