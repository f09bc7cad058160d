// The numbers of fields are those of onnx.proto (https://github.com/onnx/onnx).
#include "src/export/onnx/onnx_graph.h"

#include <fmt/format.h>

#include "src/core/check.h"

namespace carole::exporting {
namespace {

namespace graph {
constexpr int kNode = 1, kName = 2, kInitializer = 5, kInput = 11, kOutput = 12;
}
namespace node {
constexpr int kInput = 1, kOutput = 2, kName = 3, kOperation = 4, kAttribute = 5;
}
namespace attribute {
constexpr int kName = 1, kFloat = 2, kInteger = 3, kText = 4, kIntegers = 8, kType = 20;
constexpr int kTypeFloat = 1, kTypeInteger = 2, kTypeText = 3, kTypeIntegers = 7;
}  // namespace attribute
namespace tensor {
constexpr int kDims = 1, kType = 2, kName = 8, kBytes = 9, kExternal = 13, kLocation = 14;
constexpr int kLocationExternal = 1;
}  // namespace tensor

uint64_t Encoded(int64_t value) { return static_cast<uint64_t>(value); }

ProtoMessage TensorHeader(const std::string& name, OnnxType type, std::span<const int64_t> dims) {
  ProtoMessage message;
  for (const int64_t size : dims) message.AddInteger(tensor::kDims, Encoded(size));
  message.AddInteger(tensor::kType, static_cast<uint64_t>(type));
  message.AddBytes(tensor::kName, name);
  return message;
}

uint64_t BytesOf(OnnxType type, std::span<const int64_t> dims) {
  uint64_t bytes = type == OnnxType::kInt64 ? 8 : type == OnnxType::kFloat ? 4 : 1;
  for (const int64_t size : dims) bytes *= Encoded(size);
  return bytes;
}

struct AddAttributeValue {
  ProtoMessage& message;

  void operator()(int64_t value) const {
    message.AddInteger(attribute::kInteger, Encoded(value));
    message.AddInteger(attribute::kType, attribute::kTypeInteger);
  }
  void operator()(float value) const {
    message.AddFloat(attribute::kFloat, value);
    message.AddInteger(attribute::kType, attribute::kTypeFloat);
  }
  void operator()(const std::string& value) const {
    message.AddBytes(attribute::kText, value);
    message.AddInteger(attribute::kType, attribute::kTypeText);
  }
  void operator()(const std::vector<int64_t>& values) const {
    for (const int64_t value : values) message.AddInteger(attribute::kIntegers, Encoded(value));
    message.AddInteger(attribute::kType, attribute::kTypeIntegers);
  }
};

// ValueInfoProto{name, TypeProto{Tensor{type, TensorShapeProto{Dimension{value or name}}}}}
ProtoMessage ValueInfo(const std::string& name, OnnxType type, const OnnxGraph::Dims& dims) {
  ProtoMessage shape;
  for (const auto& size : dims) {
    ProtoMessage dimension;
    if (const auto* number = std::get_if<int64_t>(&size)) {
      dimension.AddInteger(1, Encoded(*number));
    } else {
      dimension.AddBytes(2, std::get<std::string>(size));
    }
    shape.AddMessage(1, std::move(dimension));
  }
  ProtoMessage tensor_type, type_message, message;
  tensor_type.AddInteger(1, static_cast<uint64_t>(type));
  tensor_type.AddMessage(2, std::move(shape));
  type_message.AddMessage(1, std::move(tensor_type));
  message.AddBytes(1, name);
  message.AddMessage(2, std::move(type_message));
  return message;
}

}  // namespace

uint64_t OnnxWeights::bytes() const { return BytesOf(type, dims); }

void AddOnnxEntry(ProtoMessage& message, int field, std::string_view key, std::string_view value) {
  ProtoMessage entry;
  entry.AddBytes(1, key);
  entry.AddBytes(2, value);
  message.AddMessage(field, std::move(entry));
}

std::string OnnxGraph::Add(const std::string& operation, const std::string& name,
                           const std::vector<std::string>& inputs,
                           const OnnxAttributes& attributes) {
  std::string output = names_.Take(name);
  ProtoMessage message;
  for (const std::string& input : inputs) message.AddBytes(node::kInput, input);
  message.AddBytes(node::kOutput, output);
  message.AddBytes(node::kName, output);
  message.AddBytes(node::kOperation, operation);
  for (const auto& [key, value] : attributes) {
    ProtoMessage entry;
    entry.AddBytes(attribute::kName, key);
    std::visit(AddAttributeValue{entry}, value);
    message.AddMessage(node::kAttribute, std::move(entry));
  }
  message_.AddMessage(graph::kNode, std::move(message));
  return output;
}

std::string OnnxGraph::AddConstant(const std::string& name, OnnxType type,
                                   std::span<const int64_t> dims, std::string_view bytes) {
  std::string unique = names_.Take(name);
  ProtoMessage message = TensorHeader(unique, type, dims);
  message.AddBytes(tensor::kBytes, bytes);
  message_.AddMessage(graph::kInitializer, std::move(message));
  return unique;
}

std::string OnnxGraph::Integers(std::span<const int64_t> values) {
  const int64_t count = std::ssize(values);
  return AddConstant(
      "integers", OnnxType::kInt64, {&count, 1},
      {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t)});
}

std::string OnnxGraph::Number(float value) {
  return AddConstant("number", OnnxType::kFloat, {},
                     {reinterpret_cast<const char*>(&value), sizeof(value)});
}

std::string OnnxGraph::Byte(uint8_t value) {
  return AddConstant("byte", OnnxType::kUint8, {}, {reinterpret_cast<const char*>(&value), 1});
}

std::string OnnxGraph::Numbers(const std::vector<int64_t>& dims, const std::vector<float>& values) {
  CAROLE_CHECK_EQ(BytesOf(OnnxType::kFloat, dims), values.size() * sizeof(float),
                  "bytes of a constant");
  return AddConstant("numbers", OnnxType::kFloat, dims,
                     {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
}

void OnnxGraph::AddWeights(const OnnxWeights& weights) {
  CAROLE_CHECK_EQ(names_.Take(weights.name), weights.name, "name of a tensor");
  ProtoMessage message = TensorHeader(weights.name, weights.type, weights.dims);
  message.AddStreamed(tensor::kBytes, weights.bytes(), weights.produce);
  message_.AddMessage(graph::kInitializer, std::move(message));
}

void OnnxGraph::AddExternalWeights(const OnnxWeights& weights, const std::string& file,
                                   uint64_t offset) {
  CAROLE_CHECK_EQ(names_.Take(weights.name), weights.name, "name of a tensor");
  ProtoMessage message = TensorHeader(weights.name, weights.type, weights.dims);
  AddOnnxEntry(message, tensor::kExternal, "location", file);
  AddOnnxEntry(message, tensor::kExternal, "offset", std::to_string(offset));
  AddOnnxEntry(message, tensor::kExternal, "length", std::to_string(weights.bytes()));
  message.AddInteger(tensor::kLocation, tensor::kLocationExternal);
  message_.AddMessage(graph::kInitializer, std::move(message));
}

void OnnxGraph::AddInput(const std::string& name, OnnxType type, const Dims& dims) {
  CAROLE_CHECK_EQ(names_.Take(name), name, "name of an input");
  message_.AddMessage(graph::kInput, ValueInfo(name, type, dims));
}

void OnnxGraph::AddOutput(const std::string& name, const Dims& dims) {
  message_.AddMessage(graph::kOutput, ValueInfo(name, OnnxType::kFloat, dims));
}

ProtoMessage OnnxGraph::Take(const std::string& name) {
  message_.AddBytes(graph::kName, name);
  return std::move(message_);
}

}  // namespace carole::exporting
