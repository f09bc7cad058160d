// TFRecord files: runs of `uint64 length | masked crc of the length | data | masked crc of the
// data`.
//
// A file may be compressed as a whole (gzip or zlib); offsets are then those of the inflated bytes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "src/core/files/bytes.h"

namespace carole::io {

inline constexpr uint64_t kRecordHeaderBytes = 12;   // before the data
inline constexpr uint64_t kRecordFramingBytes = 16;  // before and after the data

// Opens a shard, plain or compressed (told apart by its first bytes: FORMATS.md). Throws DiskError.
std::unique_ptr<Source> OpenRecords(const std::filesystem::path& path);
std::unique_ptr<Source> OpenRecords(std::unique_ptr<Source> file);

// The same for reading at any offset from any thread: a compressed shard is inflated into memory.
// Throws DataError when that takes more than 4 GiB, and for a damaged stream; with skip_damage that
// ends where it can be read no further, in a byte that is no record.
std::unique_ptr<Source> OpenSeekableRecords(const std::filesystem::path& path,
                                            bool skip_damage = false);

// "[io.tfrecord] NAME: record INDEX at byte OFFSET: ", the start of every error about a record.
std::string RecordPlace(std::string_view file, int64_t index, uint64_t offset);
// The text of an error with the place before it, where it does not begin with that already.
std::string AtPlace(std::string_view place, std::string_view error);

// Checks the 12 bytes in front of a record and returns its length. Throws DataError when they are
// fewer than 12, when the crc does not fit, or when the length runs past `file_size` (if known).
uint64_t CheckRecordHeader(std::string_view header, const std::string& file, int64_t index,
                           uint64_t offset, std::optional<uint64_t> file_size);

// Throws the DataError of a shard without records.
[[noreturn]] void FailEmptyShard(const std::string& file);

// Reads the record that begins at `offset` into `buffer` (grown, never shrunk) and returns its
// data, valid until the buffer changes. `index` is for the text of errors only. Returns nullopt at
// the exact end of the source. A length is not believed before its crc fits, and memory grows only
// as data really comes. Throws DataError. expected_length, when known, saves a second read; the
// record need not have that length.
std::optional<std::string_view> ReadRecordAt(const Source& source, uint64_t offset, int64_t index,
                                             std::string& buffer, uint64_t expected_length = 0);

// Where the first record at or behind `offset` begins, in a source that has a size; that size when
// there is none. It is whole, but its data may be damaged.
uint64_t FindNextRecord(const Source& source, uint64_t offset);

// Reads the records of one source from front to back. Throws DataError for an empty file.
class TfRecordReader {
 public:
  // `source` must outlive the reader.
  explicit TfRecordReader(const Source& source) : source_(source) {}

  // The data of the next record, valid until the next call; nullopt at the end.
  std::optional<std::string_view> Next();

  int64_t index() const { return index_ - 1; }  // of the record that Next() gave last
  uint64_t offset() const { return offset_; }   // at which that record begins

 private:
  const Source& source_;
  std::string buffer_;
  int64_t index_ = 0;
  uint64_t offset_ = 0;
  uint64_t next_offset_ = 0;
};

// The record as files hold it: length, data and their checksums.
void AppendRecord(std::string& bytes, std::string_view data);

// Writes records to a sink. Commit the sink when all are written.
class TfRecordWriter {
 public:
  explicit TfRecordWriter(Sink& sink) : sink_(sink) {}
  void Write(std::string_view data);

 private:
  Sink& sink_;
  std::string record_;
};

}  // namespace carole::io
