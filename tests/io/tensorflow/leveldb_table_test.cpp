#include "io/tensorflow/leveldb_table.h"

#include <map>

#include "src/core/files/crc32c.h"
#include "tests/io/damage.h"

namespace carole::io {
namespace {

using testing::HasSubstr;
using Entries = std::map<std::string, std::string>;

std::string WriteTable(const Entries& entries) {
  std::string bytes;
  MemorySink sink(&bytes);
  LeveldbTableWriter writer(sink);
  for (const auto& [key, value] : entries) writer.Add(key, value);
  writer.Finish();
  return bytes;
}

Entries ReadTable(const std::string& bytes) {
  const MemorySource source("t.index", bytes);
  Entries entries;
  LeveldbTableReader(source).Visit(
      [&](std::string_view key, std::string_view value) { entries.emplace(key, value); });
  return entries;
}

std::string ErrorOf(const std::string& bytes) {
  return TextOf<DataError>([&] { ReadTable(bytes); });
}

// Makes a table of one block with the given compression type, and an index that points to it.
std::string TableOfBlock(std::string block, char compression_type) {
  const auto size = static_cast<char>(block.size());
  const auto seal = [](std::string bytes, char compression) {
    bytes.push_back(compression);
    AppendLittleEndian(bytes, MaskedCrc32c(bytes));
    return bytes;
  };
  std::string bytes = seal(std::move(block), compression_type);
  const auto index_offset = static_cast<char>(bytes.size());
  const std::string index = FromHex("00 01 02 7a 00") + size + FromHex("00000000 01000000");
  bytes += seal(index, 0);
  std::string footer = FromHex("0000") + index_offset + static_cast<char>(index.size());
  footer.resize(40, '\0');
  return bytes + footer + std::string(kTableMagic);
}

TEST(LeveldbTable, RoundTripIsExact) {
  EXPECT_EQ(ReadTable(WriteTable({})), Entries{});
  Entries entries{{"", "header"}, {"a", ""}, {std::string("a\0b", 3), "nul"}, {"\xff", "last"}};
  for (int i = 0; i < 1000; ++i) entries[fmt::format("net/conv{:04}/weights", i)] = "v";
  entries["big"] = std::string(400'000, 'x');  // longer than a block
  entries["bigger"] = std::string(500'000, 'y');
  EXPECT_EQ(ReadTable(WriteTable(entries)), entries);
}

TEST(LeveldbTable, SharesPrefixes) {
  const std::string bytes = WriteTable({{"net/a", "1"}, {"net/b", "2"}});
  EXPECT_EQ(ToHex(bytes.substr(0, 14)), "000501" + ToHex("net/a1") + "040101" + ToHex("b2"));
}

TEST(LeveldbTable, WriterRefusesKeysOutOfOrder) {
  std::string bytes;
  MemorySink sink(&bytes);
  LeveldbTableWriter writer(sink);
  writer.Add("b", "");
  EXPECT_THROW(writer.Add("a", ""), InternalError);
  EXPECT_THROW(writer.Add("b", ""), InternalError);
}

TEST(LeveldbTable, ErrorsDescribeTheDamage) {
  DamagedBytes table{WriteTable({{"key", "value"}})};
  DamagedBytes flipped = table;
  flipped.FlipBit(5);
  EXPECT_THAT(ErrorOf(flipped.bytes), HasSubstr("t.index: block at byte 0: checksum mismatch"));
  DamagedBytes cut = table;
  cut.ShrinkSize(1);
  EXPECT_THAT(ErrorOf(cut.bytes), HasSubstr("does not end with a table's magic number"));
  EXPECT_THAT(ErrorOf("short"), HasSubstr("too short for a table: got 5 bytes"));
  EXPECT_THAT(ErrorOf(table.bytes.substr(9)), HasSubstr("in a file of"));
}

// Each key may share all bytes of the previous one, so a small file could take much memory.
TEST(LeveldbTable, RefusesKeysLongerThanAnyName) {
  EXPECT_EQ(ReadTable(WriteTable({{std::string(65536, 'k'), "v"}})).size(), 1);
  EXPECT_THAT(ErrorOf(WriteTable({{std::string(65537, 'k'), "v"}})),
              HasSubstr("a key of more than 65536 bytes"));
}

TEST(LeveldbTable, FlippedBitsAreDetectedOrHarmless) {
  const Entries entries{{"a", "first"}, {"ab", "second"}, {"c", "third"}};
  const std::string bytes = WriteTable(entries);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    DamagedBytes damaged{bytes};
    damaged.FlipBit(bit / 8, static_cast<int>(bit % 8));
    try {
      EXPECT_EQ(ReadTable(damaged.bytes), entries) << "bit " << bit;
    } catch (const DataError&) {
    }
  }
}

TEST(LeveldbTable, RefusesMalformedBlocks) {
  EXPECT_THAT(ErrorOf(TableOfBlock(FromHex("00 7f 00 61 00000000 01000000"), 0)),
              HasSubstr("damaged block"));  // a key of 127 bytes
  EXPECT_THAT(ErrorOf(TableOfBlock(FromHex("00 01 00 61 00000000 ffffffff"), 0)),
              HasSubstr("damaged block"));  // 4 billion restarts
  EXPECT_THAT(ErrorOf(TableOfBlock(FromHex("05 01 00 61 00000000 01000000"), 0)),
              HasSubstr("damaged block"));  // shares 5 bytes with no key
  EXPECT_THAT(ErrorOf(TableOfBlock("", 0)), HasSubstr("damaged block"));
  EXPECT_THAT(ErrorOf(TableOfBlock("abcd", 7)), HasSubstr("compression: got 7"));
}

// 23 bytes: the key a, its value "abcabcabcabc" as a literal and a copy, one restart.
TEST(LeveldbTable, ReadsSnappy) {
  const std::string block = FromHex("18 18 00010c61 616263 15 03 1c 0000000001000000");
  EXPECT_EQ(ReadTable(TableOfBlock(block, 1)), (Entries{{"a", "abcabcabcabc"}}));
}

TEST(LeveldbTable, RefusesDamagedSnappy) {
  const auto error = [](std::string_view hex) { return ErrorOf(TableOfBlock(FromHex(hex), 1)); };
  const auto damaged = [](int bytes) {
    return fmt::format(
        "[io.table] t.index: block at byte 0: compressed block: is damaged: it does not give the "
        "{} bytes that it declares",
        bytes);
  };
  EXPECT_THAT(error("ffffffff0f 00"),
              HasSubstr("block at byte 0: compressed block: declares a length that it cannot"));
  EXPECT_THAT(error("ffffffffff"), HasSubstr("malformed length"));
  EXPECT_THAT(error(""), HasSubstr("malformed length"));
  EXPECT_EQ(error("04 0c6162"), damaged(4));     // truncated
  EXPECT_EQ(error("04 0061 0105"), damaged(4));  // longer than declared
  EXPECT_EQ(error("01 046162"), damaged(1));
  EXPECT_EQ(error("05 0061 0105"), damaged(5));  // copies from before the beginning
  EXPECT_EQ(error("05 0061 0100"), damaged(5));
  EXPECT_EQ(error("04 0061"), damaged(4));  // shorter than declared
}

}  // namespace
}  // namespace carole::io
