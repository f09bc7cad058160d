#include "src/export/common/proto_message.h"

#include <iterator>
#include <utility>

#include "src/core/check.h"

namespace carole::exporting {
namespace {

// The kinds of fields that we need (https://protobuf.dev/programming-guides/encoding).
constexpr int kVarint = 0, kLengthPrefixed = 2, kFourBytes = 5;

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

std::string Key(int field, int kind) {
  return Varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(kind));
}

// Passes bytes on and counts them.
class CountingSink : public Sink {
 public:
  explicit CountingSink(Sink& sink) : sink_(sink) {}
  void Append(std::string_view bytes) override {
    count_ += bytes.size();
    sink_.Append(bytes);
  }
  void Commit() override {}
  uint64_t count() const { return count_; }

 private:
  Sink& sink_;
  uint64_t count_ = 0;
};

}  // namespace

void ProtoMessage::Append(std::string_view bytes) {
  if (parts_.empty() || !std::holds_alternative<std::string>(parts_.back()))
    parts_.emplace_back(std::string());
  std::get<std::string>(parts_.back()).append(bytes);
  size_ += bytes.size();
}

void ProtoMessage::AddHeader(int field, uint64_t size) {
  Append(Key(field, kLengthPrefixed) + Varint(size));
}

void ProtoMessage::AddInteger(int field, uint64_t value) {
  Append(Key(field, kVarint) + Varint(value));
}

void ProtoMessage::AddFloat(int field, float value) {
  std::string bytes = Key(field, kFourBytes);
  AppendLittleEndian(bytes, value);
  Append(bytes);
}

void ProtoMessage::AddBytes(int field, std::string_view bytes) {
  AddHeader(field, bytes.size());
  Append(bytes);
}

void ProtoMessage::AddMessage(int field, ProtoMessage message) {
  AddHeader(field, message.size_);
  for (auto& part : message.parts_) {
    if (const auto* bytes = std::get_if<std::string>(&part)) {
      Append(*bytes);
    } else {
      size_ += std::get<Streamed>(part).size;
      parts_.push_back(std::move(part));
    }
  }
}

void ProtoMessage::AddStreamed(int field, uint64_t size, Produce produce) {
  AddHeader(field, size);
  parts_.emplace_back(Streamed{size, std::move(produce)});
  size_ += size;
}

void ProtoMessage::WriteTo(Sink& sink) const {
  for (const auto& part : parts_) {
    if (const auto* bytes = std::get_if<std::string>(&part)) {
      sink.Append(*bytes);
      continue;
    }
    const auto& [size, produce] = std::get<Streamed>(part);
    CountingSink counting(sink);
    produce(counting);
    CAROLE_CHECK_EQ(counting.count(), size, "bytes of a streamed field");
  }
}

}  // namespace carole::exporting
