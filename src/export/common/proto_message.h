// Messages of Protocol Buffers, for formats whose files are one large message: ONNX and
// TensorFlow's GraphDef.
//
// Weights make such a message too large for memory. A streamed field has a known size, and its
// bytes are made only while the message is written.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/core/files/bytes.h"

namespace carole::exporting {

// The number of bytes beyond which libraries of Protocol Buffers refuse a message.
inline constexpr uint64_t kMaxProtoBytes = (uint64_t{1} << 31) - 1;

class ProtoMessage {
 public:
  // Appends all bytes of a streamed field to the sink.
  using Produce = std::function<void(Sink& sink)>;

  // Each of these appends a field with this number. Negative integers are passed as
  // static_cast<uint64_t>(int64_t), as the format wants.
  void AddInteger(int field, uint64_t value);
  void AddFloat(int field, float value);
  void AddBytes(int field, std::string_view bytes);
  void AddMessage(int field, ProtoMessage message);
  void AddStreamed(int field, uint64_t size, Produce produce);

  uint64_t size() const { return size_; }
  // Throws InternalError if a streamed field has another size than was said.
  void WriteTo(Sink& sink) const;

 private:
  struct Streamed {
    uint64_t size;
    Produce produce;
  };

  void AddHeader(int field, uint64_t size);
  void Append(std::string_view bytes);

  std::vector<std::variant<std::string, Streamed>> parts_;
  uint64_t size_ = 0;
};

}  // namespace carole::exporting
