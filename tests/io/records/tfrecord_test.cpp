#include "io/records/tfrecord.h"

#include "io/records/record_index.h"
#include "src/core/files/crc32c.h"
#include "tests/io/compress.h"
#include "tests/io/damage.h"

namespace carole::io {
namespace {

using testing::HasSubstr;

std::vector<std::string> ReadRecords(const Source& source) {
  std::vector<std::string> all;
  TfRecordReader reader(source);
  while (const auto record = reader.Next()) all.emplace_back(*record);
  return all;
}

std::vector<std::string> ReadCompressed(const std::string& bytes) {
  return ReadRecords(*OpenRecords(std::make_unique<MemorySource>("shard", bytes)));
}

std::string ErrorOf(const DamagedBytes& file) {
  return TextOf<DataError>([&] { ReadRecords(file.Open()); });
}

// "first" at 0 (21 bytes), "second record" at 21 (29 bytes).
DamagedBytes TwoRecords() { return {Records({"first", "second record"})}; }

TEST(TfRecord, WritesKnownBytes) {
  EXPECT_EQ(ToHex(Records({"abc"})), "0300000000000000b099490e6162636e57f121");
  EXPECT_EQ(ToHex(Records({""})), "000000000000000029039807d8ea82a2");
}

TEST(TfRecord, ReadsWhatWasWritten) {
  const std::vector<std::string> records = {"first", "", std::string(100'000, 'x'), "last"};
  EXPECT_EQ(ReadRecords(DamagedBytes{Records(records)}.Open()), records);
}

TEST(TfRecord, ReaderTellsIndexAndOffset) {
  const MemorySource source = TwoRecords().Open();
  TfRecordReader reader(source);
  reader.Next();
  reader.Next();
  EXPECT_EQ(reader.index(), 1);
  EXPECT_EQ(reader.offset(), 21u);
}

TEST(TfRecord, DetectsCompressedFiles) {
  const std::vector<std::string> records = {"first", "", std::string(300'000, 'x')};
  EXPECT_EQ(ReadCompressed(Compress(Records(records), 31)), records);
  EXPECT_EQ(ReadCompressed(Compress(Records(records), 15)), records);
  EXPECT_EQ(ReadCompressed(Records(records)), records);
}

TEST(TfRecord, ReadsSeveralGzipMembersAsOneStream) {
  const std::string bytes = Records({"first", "second"});
  EXPECT_EQ(ReadCompressed(Compress(bytes.substr(0, 7), 31) + Compress(bytes.substr(7), 31)),
            (std::vector<std::string>{"first", "second"}));
}

TEST(TfRecord, ReadsACompressedShardAtAnyOffset) {
  const TemporaryFolder folder;
  WriteText(folder / "shard", Compress(Records({"first", "second"}), 31));
  const auto source = OpenSeekableRecords(folder / "shard");
  std::string buffer;
  EXPECT_EQ(ReadRecordAt(*source, 21, 1, buffer), "second");
  EXPECT_EQ(ReadRecordAt(*source, 0, 0, buffer, 5), "first");
}

// The little-endian length of a record of 0x8b1f bytes equals the first bytes of a gzip file.
TEST(TfRecord, DoesNotTakeALengthForGzip) {
  for (const size_t length : {0x8b1f, 0x88b1f}) {
    const std::vector<std::string> records = {std::string(length, 'x'), "second"};
    EXPECT_EQ(ReadCompressed(Records(records)), records);
  }
}

// With skip_damage the source holds the bytes before the damage, then a few zeros.
TEST(TfRecord, ReadsUpToTheDamageOfACompressedShard) {
  const TemporaryFolder folder;
  std::vector<std::string> records;
  for (int i = 0; i < 2000; ++i) records.push_back(fmt::format("record {} {}", i, i * 7919 % 997));
  const std::string plain = Records(records), bytes = Compress(plain, 31);
  WriteText(folder / "shard", bytes.substr(0, bytes.size() * 3 / 4));
  EXPECT_THROW(OpenSeekableRecords(folder / "shard"), DataError);
  const std::string got = ReadAll(*OpenSeekableRecords(folder / "shard", true), plain.size());
  EXPECT_GT(got.size(), plain.size() * 7 / 10);
  EXPECT_LT(got.size(), plain.size());
  EXPECT_TRUE(plain.starts_with(got.substr(0, got.size() - kRecordHeaderBytes - 1)));
}

// All records are intact here; only the gzip checksum after them is damaged.
TEST(TfRecord, ReportsADamagedGzipChecksum) {
  const TemporaryFolder folder;
  DamagedBytes file{Compress(Records({"first", "second"}), 31)};
  file.FlipBit(file.bytes.size() - 6);
  WriteText(folder / "shard", file.bytes);
  bool damaged = false;
  const auto offsets = ScanRecords(*OpenSeekableRecords(folder / "shard", true), &damaged);
  EXPECT_TRUE(damaged);
  EXPECT_GE(offsets.size(), 2u);
}

TEST(TfRecord, RejectsTruncatedOrDamagedCompression) {
  DamagedBytes file{Compress(Records({"first", std::string(5000, 'x')}), 31)};
  file.ShrinkSize(12);
  EXPECT_THAT(TextOf<DataError>([&] { ReadCompressed(file.bytes); }),
              HasSubstr("[io.inflate] shard: near byte"));
  DamagedBytes flipped{Compress(Records({"first", std::string(5000, 'x')}), 31)};
  flipped.FlipBit(flipped.bytes.size() - 6);  // in the CRC-32 of the trailer
  EXPECT_THAT(TextOf<DataError>([&] { ReadCompressed(flipped.bytes); }),
              HasSubstr("incorrect data check"));
}

TEST(TfRecord, RejectsAFlippedBitInTheLength) {
  DamagedBytes file = TwoRecords();
  file.FlipBit(21);
  EXPECT_THAT(
      ErrorOf(file),
      HasSubstr(
          "[io.tfrecord] train-00012: record 1 at byte 21: length checksum mismatch: got 0x"));
}

TEST(TfRecord, AllocatesNothingForAnAbsurdLength) {
  DamagedBytes file = TwoRecords();
  file.SetByte(6, '\x7f');
  EXPECT_THAT(ErrorOf(file), HasSubstr("record 0 at byte 0: length checksum mismatch"));
}

TEST(TfRecord, RejectsABadLengthChecksum) {
  DamagedBytes file = TwoRecords();
  file.FlipBit(21 + 8, 5);
  EXPECT_THAT(ErrorOf(file), HasSubstr("record 1 at byte 21: length checksum mismatch"));
}

TEST(TfRecord, RejectsAFlippedBitInTheData) {
  DamagedBytes file{Records({"first", "abc"})};
  file.FlipBit(21 + 12);
  // The stored checksum is that of "abc"; the damaged data has another one.
  EXPECT_THAT(ErrorOf(file),
              testing::MatchesRegex(
                  "\\[io.tfrecord\\] train-00012: record 1 at byte 21: data checksum mismatch: "
                  "got 0x21f1576e, want 0x[0-9a-f]+; re-copy the shard"));
}

TEST(TfRecord, RejectsABadDataChecksum) {
  DamagedBytes file = TwoRecords();
  file.FlipBit(file.bytes.size() - 1);
  EXPECT_THAT(ErrorOf(file), HasSubstr("record 1 at byte 21: data checksum mismatch"));
}

TEST(TfRecord, RejectsTruncationAtEveryByte) {
  const DamagedBytes whole = TwoRecords();
  for (size_t cut = 1; cut < 29; ++cut) {
    DamagedBytes file = whole;
    file.ShrinkSize(cut);
    const bool in_header = 29 - cut < 12;
    EXPECT_THAT(
        ErrorOf(file),
        HasSubstr(fmt::format("record 1 at byte 21: truncated {}: got {} bytes to the end of the "
                              "file, want {}; re-copy the shard",
                              in_header ? "header" : "record", 29 - cut, in_header ? 12 : 29)));
  }
}

TEST(TfRecord, RejectsAnEmptyFile) {
  EXPECT_EQ(ErrorOf({""}),
            "[io.tfrecord] train-00012: the file is empty: got 0 records, want at least 1; re-copy "
            "the shard, or pass \x1f$(max_bad_records)=1 to take it as a shard without records");
}

TEST(TfRecord, RejectsAFileOfAnotherKind) {
  EXPECT_THAT(ErrorOf({"This is a text file, not records."}),
              HasSubstr("is this a TFRecord file?"));
}

// A header with a valid checksum and a length that exceeds the file.
std::string HeaderOf(uint64_t length) {
  std::string header;
  AppendLittleEndian(header, length);
  AppendLittleEndian(header, MaskedCrc32c(header));
  return header;
}

TEST(TfRecord, LimitsALengthWithAValidChecksum) {
  EXPECT_THAT(ErrorOf({HeaderOf(uint64_t{1} << 30) + "abc"}),
              HasSubstr("record 0 at byte 0: truncated record: got 15 bytes to the end of the "
                        "file, want 1073741840"));
  EXPECT_THAT(ErrorOf({HeaderOf(~uint64_t{0} - 3) + "abc"}), HasSubstr("record too long"));
}

}  // namespace
}  // namespace carole::io
