// Reads and writes TFRecord files. A file is a sequence of records
//   uint64 length | masked CRC-32C of the length | data | masked CRC-32C of the data
// with nothing before, between or after them (io/records/FORMATS.md).
//
// A file may be compressed as a whole (gzip or zlib). Offsets then count inflated bytes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "src/core/files/bytes.h"

namespace carole::io {

inline constexpr uint64_t kRecordHeaderBytes = 12;   // before the data
inline constexpr uint64_t kRecordFramingBytes = 16;  // before and after the data

// Opens a shard and returns its inflated bytes. The first bytes tell whether it is compressed
// (FORMATS.md). Throws DiskError.
std::unique_ptr<Source> OpenRecords(const std::filesystem::path& path);
std::unique_ptr<Source> OpenRecords(std::unique_ptr<Source> file);

// Like OpenRecords(), but the result has a size() and may be read at any offset from any thread: a
// compressed shard is inflated into memory. Throws DataError if that needs more than 4 GiB, or if
// the compressed stream is damaged. With skip_damage, a damaged stream ends where inflating failed,
// followed by a few bytes that are not a record, so that the damage is counted as a bad record.
std::unique_ptr<Source> OpenSeekableRecords(const std::filesystem::path& path,
                                            bool skip_damage = false);

// Returns "[io.tfrecord] FILE: record INDEX at byte OFFSET: ", the beginning of every error message
// about a record.
std::string RecordLocation(std::string_view file, int64_t index, uint64_t offset);
// Returns an error's text with RecordLocation() in front, unless the text already begins with it.
std::string WithLocation(std::string_view location, std::string_view error);

// Checks the 12 bytes before a record's data and returns the length of the data. `file`, `index`
// and `offset` locate the record in error messages. Throws DataError if `header` is shorter than 12
// bytes, if the checksum is wrong, if the length exceeds 2 GiB, or if the record would end after
// `file_size` (if known).
uint64_t CheckRecordHeader(std::string_view header, const std::string& file, int64_t index,
                           uint64_t offset, std::optional<uint64_t> file_size);

// Throws the DataError for a shard of 0 bytes.
[[noreturn]] void ThrowEmptyShard(const std::string& file);

// Reads the record that begins at `offset` and returns its data, a view into `buffer` that is valid
// until the buffer changes. The buffer grows and never shrinks. Returns nullopt at the exact end of
// the source. `index` is used in error messages only. If `expected_length` is given, one read
// usually suffices; the record may have another length.
//
// A length is used only after its checksum was verified, and memory grows only with data that was
// really read. Throws DataError if the record is damaged or truncated.
std::optional<std::string_view> ReadRecordAt(const Source& source, uint64_t offset, int64_t index,
                                             std::string& buffer, uint64_t expected_length = 0);

// Searches a source that has a size for the next record at or after `offset`. Returns the record's
// offset, or the source's size if there is none. The record's header is valid and the record ends
// within the source, but its data may be damaged.
uint64_t FindNextRecord(const Source& source, uint64_t offset);

// Reads the records of one source from front to back.
class TfRecordReader {
 public:
  // `source` must outlive the reader.
  explicit TfRecordReader(const Source& source) : source_(source) {}

  // Returns the data of the next record, which is valid until the next call, or nullopt at the end.
  // Throws DataError if the record is damaged or the file has 0 bytes.
  std::optional<std::string_view> Next();

  int64_t index() const { return index_ - 1; }  // of the record that Next() returned last
  uint64_t offset() const { return offset_; }   // where that record begins

 private:
  const Source& source_;
  std::string buffer_;
  int64_t index_ = 0;
  uint64_t offset_ = 0;
  uint64_t next_offset_ = 0;
};

// Appends a framed record to `bytes`: length, data and their checksums.
void AppendRecord(std::string& bytes, std::string_view data);

// Writes records to a sink. The caller must call sink.Commit() after the last record.
class TfRecordWriter {
 public:
  explicit TfRecordWriter(Sink& sink) : sink_(sink) {}
  void Write(std::string_view data);

 private:
  Sink& sink_;
  std::string record_;
};

}  // namespace carole::io
