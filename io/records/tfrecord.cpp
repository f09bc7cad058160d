#include "io/records/tfrecord.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/archives/inflate.h"
#include "src/core/error.h"
#include "src/core/files/crc32c.h"

namespace carole::io {
namespace {

constexpr uint64_t kMaxRecordBytes = uint64_t{2} << 30;
// A claimed length allocates at most this much memory before the data has been read.
constexpr uint64_t kReadAheadBytes = uint64_t{16} << 20;

bool IsValidHeader(std::string_view header) {
  return header.size() >= kRecordHeaderBytes &&
         MaskedCrc32c(header.substr(0, 8)) == LoadLittleEndian<uint32_t>(header.data() + 8);
}

[[noreturn]] void FailTruncated(const Source& source, int64_t index, uint64_t offset, uint64_t got,
                                uint64_t want) {
  throw DataError(fmt::format(
      "{}truncated record: got {} bytes to the end of the file, want {}; re-copy the shard",
      RecordLocation(source.name(), index, offset), got, want));
}

// Fills `buffer` with the `want` bytes from `offset` on. The first `have` bytes are there already.
void ReadRest(const Source& source, uint64_t offset, int64_t index, uint64_t have, uint64_t want,
              std::string& buffer) {
  while (have < want) {
    const uint64_t end = std::min(want, have + kReadAheadBytes);
    if (buffer.size() < end) buffer.resize(end);
    const size_t got = source.ReadAt(offset + have, std::span(buffer).subspan(have, end - have));
    if (got < end - have) FailTruncated(source, index, offset, have + got, want);
    have = end;
  }
}

}  // namespace

std::string RecordLocation(std::string_view file, int64_t index, uint64_t offset) {
  return fmt::format("[io.tfrecord] {}: record {} at byte {}: ", file, index, offset);
}

std::string WithLocation(std::string_view location, std::string_view error) {
  if (error.starts_with(location)) return std::string(error);
  return fmt::format("{}{}", location, WithoutTag(error));
}

std::unique_ptr<Source> OpenRecords(const std::filesystem::path& path) {
  return OpenRecords(OpenFile(path));
}

std::unique_ptr<Source> OpenRecords(std::unique_ptr<Source> file) {
  char head[kRecordHeaderBytes] = {};
  const size_t count = file->ReadAt(0, head);
  // This check comes first, because a valid length may look like the beginning of a gzip file.
  if (IsValidHeader({head, count})) return file;
  if (IsGzip(*file)) return Inflate(std::move(file));
  if (count < 2) return file;
  const int b0 = static_cast<uint8_t>(head[0]);
  const int b1 = static_cast<uint8_t>(head[1]);
  const bool zlib = (b0 * 256 + b1) % 31 == 0 && (b0 & 15) == 8;
  return zlib ? Inflate(std::move(file)) : std::move(file);
}

std::unique_ptr<Source> OpenSeekableRecords(const std::filesystem::path& path, bool skip_damage) {
  constexpr uint64_t kMaxInflatedBytes = uint64_t{4} << 30;
  std::unique_ptr<Source> source = OpenRecords(path);
  if (source->size()) return source;
  if (!skip_damage)
    return std::make_unique<MemorySource>(source->name(), ReadAll(*source, kMaxInflatedBytes));
  std::string bytes;
  char buffer[4096];
  size_t step = sizeof(buffer);
  while (step > 0) {
    if (bytes.size() > kMaxInflatedBytes)
      throw DataError(fmt::format("[io.tfrecord] {}: too large: got over {} bytes, want at most {}",
                                  path.string(), kMaxInflatedBytes, kMaxInflatedBytes));
    try {
      const size_t count = source->ReadAt(bytes.size(), std::span(buffer).first(step));
      if (count == 0) break;
      bytes.append(buffer, count);
    } catch (const DataError&) {
      step /= 8;  // reach the last byte before the damage
    }
  }
  // These bytes are not a valid record, even if only the last byte of a record is missing. So there
  // is always something to count as a bad record.
  if (step == 0) bytes.append(kRecordHeaderBytes + 1, '\0');
  return std::make_unique<MemorySource>(source->name(), std::move(bytes));
}

uint64_t CheckRecordHeader(std::string_view header, const std::string& file, int64_t index,
                           uint64_t offset, std::optional<uint64_t> file_size) {
  if (header.size() < kRecordHeaderBytes) {
    throw DataError(fmt::format(
        "{}truncated header: got {} bytes to the end of the file, want {}; re-copy the shard",
        RecordLocation(file, index, offset), header.size(), kRecordHeaderBytes));
  }
  const uint64_t length = LoadLittleEndian<uint64_t>(header.data());
  const uint32_t stored = LoadLittleEndian<uint32_t>(header.data() + 8);
  const uint32_t computed = MaskedCrc32c(header.substr(0, 8));
  if (stored != computed) {
    throw DataError(fmt::format("{}length checksum mismatch: got {:#010x}, want {:#010x}; {}",
                                RecordLocation(file, index, offset), stored, computed,
                                index == 0 ? "is this a TFRecord file?" : "re-copy the shard"));
  }
  if (length > kMaxRecordBytes) {
    throw DataError(fmt::format("{}record too long: got {} bytes, want at most {}",
                                RecordLocation(file, index, offset), length, kMaxRecordBytes));
  }
  if (file_size && length + kRecordFramingBytes > *file_size - offset) {
    throw DataError(fmt::format(
        "{}truncated record: got {} bytes to the end of the file, want {}; re-copy the shard",
        RecordLocation(file, index, offset), *file_size - offset, length + kRecordFramingBytes));
  }
  return length;
}

void ThrowEmptyShard(const std::string& file) {
  throw DataError(fmt::format(
      "[io.tfrecord] {}: the file is empty: got 0 records, want at least 1; re-copy the shard, or "
      "pass {} to take it as a shard without records",
      file, Option("max_bad_records", "1")));
}

std::optional<std::string_view> ReadRecordAt(const Source& source, uint64_t offset, int64_t index,
                                             std::string& buffer, uint64_t expected_length) {
  const uint64_t first_read = std::min(expected_length, kReadAheadBytes) + kRecordFramingBytes;
  if (buffer.size() < first_read) buffer.resize(first_read);
  const uint64_t have = source.ReadAt(offset, std::span(buffer).first(first_read));
  if (have == 0) return std::nullopt;
  const std::string_view header =
      std::string_view(buffer).substr(0, std::min(have, kRecordHeaderBytes));
  const uint64_t length = CheckRecordHeader(header, source.name(), index, offset, source.size());
  ReadRest(source, offset, index, have, length + kRecordFramingBytes, buffer);

  const std::string_view data = std::string_view(buffer).substr(kRecordHeaderBytes, length);
  const uint32_t stored = LoadLittleEndian<uint32_t>(data.data() + length);
  const uint32_t computed = MaskedCrc32c(data);
  if (stored != computed) {
    throw DataError(
        fmt::format("{}data checksum mismatch: got {:#010x}, want {:#010x}; re-copy the shard",
                    RecordLocation(source.name(), index, offset), stored, computed));
  }
  return data;
}

uint64_t FindNextRecord(const Source& source, uint64_t offset) {
  // The next record is usually near, so the first read is small.
  constexpr size_t kFirstBytes = 4096, kMaxBytes = size_t{1} << 20;
  const uint64_t end = source.size().value();
  // A random offset has a valid checksum with a probability of 2^-32, and few of these have a
  // length that fits into the file. The data's checksum is not verified here: a malicious file with
  // many valid headers would make that take forever. The reader verifies it.
  const auto is_record = [&](uint64_t at, std::string_view header) {
    const auto length = LoadLittleEndian<uint64_t>(header.data());
    return length <= kMaxRecordBytes && length + kRecordFramingBytes <= end - at &&
           IsValidHeader(header);
  };
  std::string window;
  for (size_t step = kFirstBytes; offset + kRecordFramingBytes <= end;
       step = std::min(16 * step, kMaxBytes)) {
    window.resize(step);
    const std::string_view bytes(window.data(), source.ReadAt(offset, window));
    for (size_t i = 0; i + kRecordHeaderBytes <= bytes.size(); ++i) {
      if (is_record(offset + i, bytes.substr(i, kRecordHeaderBytes))) return offset + i;
    }
    offset += step - kRecordHeaderBytes + 1;
  }
  return end;
}

std::optional<std::string_view> TfRecordReader::Next() {
  const auto record = ReadRecordAt(source_, next_offset_, index_, buffer_);
  if (!record) {
    if (index_ == 0 && source_.size() == uint64_t{0}) ThrowEmptyShard(source_.name());
    return std::nullopt;
  }
  offset_ = next_offset_;
  next_offset_ += record->size() + kRecordFramingBytes;
  ++index_;
  return record;
}

void AppendRecord(std::string& bytes, std::string_view data) {
  std::string length;
  AppendLittleEndian<uint64_t>(length, data.size());
  bytes += length;
  AppendLittleEndian(bytes, MaskedCrc32c(length));
  bytes += data;
  AppendLittleEndian(bytes, MaskedCrc32c(data));
}

void TfRecordWriter::Write(std::string_view data) {
  record_.clear();
  AppendRecord(record_, data);
  sink_.Append(record_);
}

}  // namespace carole::io
