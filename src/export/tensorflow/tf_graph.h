// A graph of TensorFlow that is being built (GraphDef), and its two encodings. Private to this
// room.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "src/core/files/bytes.h"
#include "src/core/text/unique_names.h"
#include "src/export/common/proto_message.h"

namespace carole::exporting {

// The numbers of TensorFlow's element types.
enum class TfType : uint8_t { kFloat = 1, kInt32 = 3, kUint8 = 4, kString = 7 };

// A size of -1 is unknown.
struct TfShape {
  std::vector<int64_t> dims;
};

// A constant. Its bytes are made when the graph is written.
struct TfTensor {
  TfType type = TfType::kFloat;
  std::vector<int64_t> dims;
  uint64_t bytes = 0;
  ProtoMessage::Produce produce;
};

// A function of the graph's library.
struct TfFunctionName {
  std::string name;
};

using TfAttribute =
    std::variant<bool, int64_t, float, std::string, TfType, TfShape, TfTensor, TfFunctionName,
                 std::vector<int64_t>, std::vector<TfType>, std::vector<TfShape>>;

struct TfNode {
  std::string name, operation;
  std::vector<std::string> inputs;
  std::vector<std::pair<std::string, TfAttribute>> attributes;
};

// A list of nodes with unique names.
class TfGraph {
 public:
  using Attributes = std::vector<std::pair<std::string, TfAttribute>>;

  // Reserves a name for AddNamed(): Add() gives it to no node.
  void Reserve(const std::string& name) { names_.Take(name); }

  // Appends a node and returns its name: `name`, with a number if it is taken.
  std::string Add(const std::string& operation, const std::string& name,
                  std::vector<std::string> inputs, Attributes attributes = {});
  // The same for a name that was reserved.
  std::string AddNamed(const std::string& operation, const std::string& name,
                       std::vector<std::string> inputs, Attributes attributes = {});

  // Constants: one int32, an array of int32, one number, a list of numbers. An array without `dims`
  // is a list.
  std::string AddInteger(const std::string& name, int32_t value);
  std::string AddIntegers(const std::string& name, const std::vector<int32_t>& values,
                          std::vector<int64_t> dims = {});
  std::string AddNumber(const std::string& name, float value);
  std::string AddNumbers(const std::string& name, const std::vector<float>& values);
  // A constant of fp32 whose values are made when the graph is written.
  std::string AddWeights(const std::string& name, const std::vector<int64_t>& dims,
                         ProtoMessage::Produce produce);

  const std::vector<TfNode>& nodes() const { return nodes_; }

 private:
  std::string AddConstant(const std::string& name, const std::vector<int32_t>& values,
                          std::vector<int64_t> dims);

  std::vector<TfNode> nodes_;
  UniqueNames names_;
};

// A function with one argument and one result. In its nodes, an input is "ARGUMENT" or
// "NODE:OUTPUT:0".
struct TfFunction {
  std::string name;
  std::string argument;
  TfType argument_type = TfType::kString;
  std::string result;  // an input of the form above
  TfType result_type = TfType::kFloat;
  std::vector<TfNode> nodes;
};

// Returns the message (GraphDef). The message does not refer to `graph`.
ProtoMessage EncodeGraph(const TfGraph& graph, const std::vector<TfFunction>& functions = {});
// Writes the message in Protocol Buffers' text format.
void WriteGraphText(const TfGraph& graph, Sink& sink);

// TensorShapeProto
ProtoMessage EncodeShape(const std::vector<int64_t>& dims);

}  // namespace carole::exporting
