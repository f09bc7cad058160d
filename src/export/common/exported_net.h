// Every format is made from the graph of a net and its weights. This is the first header of
// the rooms of src/export that write files of other programs. These rooms may include the graph,
// src/backend/ops, io/preprocessing and core. carole export (src/commands) reads the checkpoint.
//
//   exported_net.h     the net and its values
//   proto_message.h    messages of Protocol Buffers
//   node_order.h       which nodes a format needs
//   quantized_layers.h   what a net with fake quantization consists of
//   window_padding.h   paddings that have a name
//
// A new format needs a folder here, and a row in src/commands/export.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "src/graph/graph.h"

namespace carole::exporting {

// A net that is written to a file. The graph must outlive it.
struct ExportedNet {
  std::string name;    // as in `carole model list`
  const Graph& graph;  // of a batch of one image, built for inference, not fused
  ValueId logits = kNone, predictions = kNone;
  // Reads the values of a variable, in TensorFlow's order. Throws DataError and DiskError.
  std::function<std::vector<float>(const Variable& variable)> read;
  // Returns the name that TensorFlow gives to the operations of a scope; empty: that of the scope.
  std::function<std::string(const std::string& scope)> operation_name = {};
  // Facts for users of the file, by name: the step, the classes and so on.
  std::map<std::string, std::string> metadata;
};

// The number of bytes of all variables in fp32.
uint64_t WeightBytes(const Graph& graph);

// A checksum of all values in the order of the variables: the CRC-32C of their CRC-32Cs. Reads all
// values once.
uint32_t WeightsDigest(const ExportedNet& net);

// The bytes of values, as files hold them.
std::string_view BytesOf(const std::vector<float>& values);

}  // namespace carole::exporting
