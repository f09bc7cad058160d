#include "src/export/common/proto_message.h"

#include <gtest/gtest.h>

#include "src/core/error.h"

namespace carole::exporting {
namespace {

std::string Write(const ProtoMessage& message) {
  std::string bytes;
  MemorySink sink(&bytes);
  message.WriteTo(sink);
  EXPECT_EQ(bytes.size(), message.size());
  return bytes;
}

// The examples of https://protobuf.dev/programming-guides/encoding.
TEST(ProtoMessage, EncodesAsDocumented) {
  ProtoMessage integer, text, outer;
  integer.AddInteger(1, 150);
  EXPECT_EQ(Write(integer), "\x08\x96\x01");
  text.AddBytes(2, "testing");
  EXPECT_EQ(Write(text), "\x12\x07testing");
  outer.AddMessage(3, std::move(integer));
  EXPECT_EQ(Write(outer), "\x1a\x03\x08\x96\x01");
}

TEST(ProtoMessage, EncodesNegativeNumbersInTenBytes) {
  ProtoMessage message;
  message.AddInteger(1, static_cast<uint64_t>(int64_t{-2}));
  EXPECT_EQ(Write(message), "\x08\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01");
}

TEST(ProtoMessage, KeepsTheOrderAroundStreamedFields) {
  ProtoMessage inner, outer;
  inner.AddBytes(1, "a");
  inner.AddStreamed(2, 3, [](Sink& sink) { sink.Append("xyz"); });
  inner.AddBytes(3, "b");
  outer.AddMessage(4, std::move(inner));
  outer.AddBytes(5, "c");
  EXPECT_EQ(Write(outer),
            "\x22\x0b\x0a\x01"
            "a\x12\x03xyz\x1a\x01"
            "b\x2a\x01"
            "c");
}

TEST(ProtoMessage, RefusesStreamedFieldsOfAnotherSize) {
  ProtoMessage message;
  message.AddStreamed(1, 4, [](Sink& sink) { sink.Append("xyz"); });
  std::string bytes;
  MemorySink sink(&bytes);
  EXPECT_THROW(message.WriteTo(sink), InternalError);
}

}  // namespace
}  // namespace carole::exporting
