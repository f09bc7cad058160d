// The layers that Keras has for the operations of a graph. For keras_model.cpp alone.
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

// Thrown where Keras has no layer for an operation.
struct NoKerasLayer {
  std::string operation;
};

// From the input "images", which comes first, to the softmax behind `logits`, which comes last.
std::vector<KerasNode> ConvertToKeras(const Graph& graph, ValueId logits);

}  // namespace carole::train
