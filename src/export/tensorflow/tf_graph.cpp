// The numbers and names of fields are those of graph.proto, node_def.proto, attr_value.proto,
// tensor.proto and function.proto (https://github.com/tensorflow/tensorflow).
#include "src/export/tensorflow/tf_graph.h"

#include <fmt/format.h>

namespace carole::exporting {
namespace {

// The version of TensorFlow 1.15. Newer programs read graphs of it.
constexpr uint64_t kProducer = 134;

uint64_t Encoded(int64_t value) { return static_cast<uint64_t>(value); }

ProtoMessage EncodeTensor(const TfTensor& tensor) {
  ProtoMessage message;
  message.AddInteger(1, static_cast<uint64_t>(tensor.type));
  message.AddMessage(2, EncodeShape(tensor.dims));
  message.AddStreamed(4, tensor.bytes, tensor.produce);
  return message;
}

// Encodes an attribute's value (AttrValue).
struct EncodeValue {
  ProtoMessage& message;

  void operator()(bool value) const { message.AddInteger(5, value ? 1 : 0); }
  void operator()(int64_t value) const { message.AddInteger(3, Encoded(value)); }
  void operator()(float value) const { message.AddFloat(4, value); }
  void operator()(const std::string& value) const { message.AddBytes(2, value); }
  void operator()(TfType value) const { message.AddInteger(6, static_cast<uint64_t>(value)); }
  void operator()(const TfShape& value) const { message.AddMessage(7, EncodeShape(value.dims)); }
  void operator()(const TfTensor& value) const { message.AddMessage(8, EncodeTensor(value)); }
  void operator()(const TfFunctionName& value) const {
    ProtoMessage function;
    function.AddBytes(1, value.name);
    message.AddMessage(10, std::move(function));
  }
  void operator()(const std::vector<int64_t>& values) const {
    ProtoMessage list;
    for (const int64_t value : values) list.AddInteger(3, Encoded(value));
    message.AddMessage(1, std::move(list));
  }
  void operator()(const std::vector<TfType>& values) const {
    ProtoMessage list;
    for (const TfType value : values) list.AddInteger(6, static_cast<uint64_t>(value));
    message.AddMessage(1, std::move(list));
  }
  void operator()(const std::vector<TfShape>& values) const {
    ProtoMessage list;
    for (const TfShape& value : values) list.AddMessage(7, EncodeShape(value.dims));
    message.AddMessage(1, std::move(list));
  }
};

ProtoMessage EncodeNode(const TfNode& node) {
  ProtoMessage message;
  message.AddBytes(1, node.name);
  message.AddBytes(2, node.operation);
  for (const std::string& input : node.inputs) message.AddBytes(3, input);
  for (const auto& [key, value] : node.attributes) {
    ProtoMessage entry, encoded;
    std::visit(EncodeValue{encoded}, value);
    entry.AddBytes(1, key);
    entry.AddMessage(2, std::move(encoded));
    message.AddMessage(5, std::move(entry));
  }
  return message;
}

ProtoMessage EncodeArgument(const std::string& name, TfType type) {
  ProtoMessage message;
  message.AddBytes(1, name);
  message.AddInteger(3, static_cast<uint64_t>(type));
  return message;
}

ProtoMessage EncodeFunction(const TfFunction& function) {
  constexpr const char* kResult = "result";
  ProtoMessage signature, message, result;
  signature.AddBytes(1, function.name);
  signature.AddMessage(2, EncodeArgument(function.argument, function.argument_type));
  signature.AddMessage(3, EncodeArgument(kResult, function.result_type));
  message.AddMessage(1, std::move(signature));
  for (const TfNode& node : function.nodes) message.AddMessage(3, EncodeNode(node));
  result.AddBytes(1, kResult);
  result.AddBytes(2, function.result);
  message.AddMessage(4, std::move(result));
  return message;
}

// A text in quotes, with the escapes of C.
std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (c >= ' ' && c <= '~') {
      quoted += c;
    } else {
      quoted += fmt::format("\\{:03o}", static_cast<unsigned char>(c));
    }
  }
  return quoted + "\"";
}

const char* TypeName(TfType type) {
  switch (type) {
    case TfType::kFloat:
      return "DT_FLOAT";
    case TfType::kInt32:
      return "DT_INT32";
    case TfType::kUint8:
      return "DT_UINT8";
    case TfType::kString:
      return "DT_STRING";
  }
  return "DT_INVALID";
}

std::string ShapeText(const std::vector<int64_t>& dims) {
  std::string text;
  for (const int64_t size : dims) text += fmt::format("dim {{ size: {} }} ", size);
  return text;
}

// An attribute's value in the text format.
struct ValueText {
  std::string operator()(bool value) const { return value ? "b: true" : "b: false"; }
  std::string operator()(int64_t value) const { return fmt::format("i: {}", value); }
  std::string operator()(float value) const { return fmt::format("f: {}", value); }
  std::string operator()(const std::string& value) const { return "s: " + Quoted(value); }
  std::string operator()(TfType value) const { return fmt::format("type: {}", TypeName(value)); }
  std::string operator()(const TfShape& value) const {
    return fmt::format("shape {{ {}}}", ShapeText(value.dims));
  }
  std::string operator()(const TfTensor& value) const {
    std::string bytes;
    MemorySink sink(&bytes);
    value.produce(sink);
    return fmt::format("tensor {{ dtype: {} tensor_shape {{ {}}} tensor_content: {} }}",
                       TypeName(value.type), ShapeText(value.dims), Quoted(bytes));
  }
  std::string operator()(const TfFunctionName& value) const {
    return fmt::format("func {{ name: {} }}", Quoted(value.name));
  }
  template <typename T>
  std::string operator()(const std::vector<T>& values) const {
    std::string text = "list { ";
    for (const T& value : values) text += (*this)(value) + " ";
    return text + "}";
  }
};

}  // namespace

ProtoMessage EncodeShape(const std::vector<int64_t>& dims) {
  ProtoMessage message;
  for (const int64_t size : dims) {
    ProtoMessage dimension;
    dimension.AddInteger(1, Encoded(size));
    message.AddMessage(2, std::move(dimension));
  }
  return message;
}

ProtoMessage EncodeGraph(const TfGraph& graph, const std::vector<TfFunction>& functions) {
  ProtoMessage message, versions, library;
  for (const TfNode& node : graph.nodes()) message.AddMessage(1, EncodeNode(node));
  versions.AddInteger(1, kProducer);
  message.AddMessage(4, std::move(versions));
  for (const TfFunction& function : functions) library.AddMessage(1, EncodeFunction(function));
  if (!functions.empty()) message.AddMessage(2, std::move(library));
  return message;
}

void WriteGraphText(const TfGraph& graph, Sink& sink) {
  for (const TfNode& node : graph.nodes()) {
    std::string text =
        fmt::format("node {{\n  name: {}\n  op: {}\n", Quoted(node.name), Quoted(node.operation));
    for (const std::string& input : node.inputs)
      text += fmt::format("  input: {}\n", Quoted(input));
    for (const auto& [key, value] : node.attributes) {
      text += fmt::format("  attr {{ key: {} value {{ {} }} }}\n", Quoted(key),
                          std::visit(ValueText{}, value));
    }
    sink.Append(text + "}\n");
  }
  sink.Append(fmt::format("versions {{ producer: {} }}\n", kProducer));
}

std::string TfGraph::Add(const std::string& operation, const std::string& name,
                         std::vector<std::string> inputs, Attributes attributes) {
  return AddNamed(operation, names_.Take(name), std::move(inputs), std::move(attributes));
}

std::string TfGraph::AddNamed(const std::string& operation, const std::string& name,
                              std::vector<std::string> inputs, Attributes attributes) {
  nodes_.push_back({name, operation, std::move(inputs), std::move(attributes)});
  return name;
}

std::string TfGraph::AddInteger(const std::string& name, int32_t value) {
  return AddConstant(name, {value}, {});
}

std::string TfGraph::AddIntegers(const std::string& name, const std::vector<int32_t>& values,
                                 std::vector<int64_t> dims) {
  if (dims.empty()) dims = {std::ssize(values)};
  return AddConstant(name, values, std::move(dims));
}

std::string TfGraph::AddConstant(const std::string& name, const std::vector<int32_t>& values,
                                 std::vector<int64_t> dims) {
  const std::string bytes(reinterpret_cast<const char*>(values.data()),
                          values.size() * sizeof(int32_t));
  return Add("Const", name, {},
             {{"dtype", TfType::kInt32},
              {"value", TfTensor{TfType::kInt32, std::move(dims), bytes.size(),
                                 [bytes](Sink& sink) { sink.Append(bytes); }}}});
}

std::string TfGraph::AddNumber(const std::string& name, float value) {
  return AddWeights(name, {}, [value](Sink& sink) {
    sink.Append({reinterpret_cast<const char*>(&value), sizeof(value)});
  });
}

std::string TfGraph::AddNumbers(const std::string& name, const std::vector<float>& values) {
  return AddWeights(name, {std::ssize(values)}, [values](Sink& sink) {
    sink.Append({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  });
}

std::string TfGraph::AddWeights(const std::string& name, const std::vector<int64_t>& dims,
                                ProtoMessage::Produce produce) {
  uint64_t bytes = sizeof(float);
  for (const int64_t size : dims) bytes *= static_cast<uint64_t>(size);
  return Add("Const", name, {},
             {{"dtype", TfType::kFloat},
              {"value", TfTensor{TfType::kFloat, dims, bytes, std::move(produce)}}});
}

}  // namespace carole::exporting
