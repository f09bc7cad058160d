// A graph of ONNX that is being built. Private to this room.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "src/core/text/unique_names.h"
#include "src/export/common/proto_message.h"

namespace carole::exporting {

// The numbers of ONNX's element types.
enum class OnnxType : uint8_t { kFloat = 1, kUint8 = 2, kInt64 = 7 };

using OnnxAttribute = std::variant<int64_t, float, std::string, std::vector<int64_t>>;
using OnnxAttributes = std::vector<std::pair<std::string, OnnxAttribute>>;

// A tensor whose values are made only while they are written.
struct OnnxWeights {
  std::string name;
  OnnxType type = OnnxType::kFloat;
  std::vector<int64_t> dims;
  ProtoMessage::Produce produce;

  uint64_t bytes() const;
};

// Tensors have names. Each function that adds something returns the name of its result.
class OnnxGraph {
 public:
  // Appends a node with one output. The output is called `name`, with a number if the name is
  // taken. "" stands for an input that is left out.
  std::string Add(const std::string& operation, const std::string& name,
                  const std::vector<std::string>& inputs, const OnnxAttributes& attributes = {});

  // Constants: a list of integers, one number, one byte, and an array of numbers.
  std::string Integers(std::span<const int64_t> values);
  std::string Integers(std::initializer_list<int64_t> values) {
    return Integers(std::span(values.begin(), values.size()));
  }
  std::string Number(float value);
  std::string Byte(uint8_t value);
  std::string Numbers(const std::vector<int64_t>& dims, const std::vector<float>& values);

  // A tensor that is streamed into the file. Its name must be unused.
  void AddWeights(const OnnxWeights& weights);
  // The same for a tensor whose values are in another file.
  void AddExternalWeights(const OnnxWeights& weights, const std::string& file, uint64_t offset);

  // Sizes of dimensions; one that varies has a name instead.
  using Dims = std::vector<std::variant<int64_t, std::string>>;
  void AddInput(const std::string& name, OnnxType type, const Dims& dims);
  void AddOutput(const std::string& name, const Dims& dims);

  // Returns the message (GraphProto). The graph is empty afterwards.
  ProtoMessage Take(const std::string& name);

 private:
  std::string AddConstant(const std::string& name, OnnxType type, std::span<const int64_t> dims,
                          std::string_view bytes);

  ProtoMessage message_;
  UniqueNames names_;
};

// Adds an entry of text to a list of pairs (StringStringEntryProto).
void AddOnnxEntry(ProtoMessage& message, int field, std::string_view key, std::string_view value);

}  // namespace carole::exporting
