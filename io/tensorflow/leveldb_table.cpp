#include "io/tensorflow/leveldb_table.h"

#include <fmt/format.h>
#include <snappy.h>

#include <algorithm>
#include <utility>

#include "src/core/check.h"
#include "src/core/error.h"
#include "src/core/files/crc32c.h"

namespace carole::io {
namespace {

constexpr size_t kFooterBytes = 48;
constexpr size_t kHandlesBytes = 40;     // part of the footer: two handles, padded with zeros
constexpr size_t kTrailerBytes = 5;      // after a block: its compression type and checksum
constexpr size_t kBlockBytes = 1 << 18;  // a block is ended at this size
// A key may share all bytes of the previous one. Without a bound, the keys of a small file could
// take much memory.
constexpr uint64_t kMaxKeyBytes = 1 << 16;
constexpr int kRestartInterval = 16;
enum Compression : char { kPlain = 0, kSnappy = 1 };
// Snappy's largest expansion: a copy element of 3 bytes produces 64 bytes.
constexpr size_t kMaxSnappyRatio = 22;

// Parses a varint and removes it from `bytes`. Returns false if the bytes are too few or the number
// has more than 64 bits.
bool TakeVarint(std::string_view& bytes, uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 127) << shift;
    if (byte < 128) return true;
  }
  return false;
}

void AppendVarint(std::string& out, uint64_t value) {
  for (; value >= 128; value >>= 7) out.push_back(static_cast<char>(value | 128));
  out.push_back(static_cast<char>(value));
}

size_t SharedPrefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

std::string ReadExactly(const Source& source, uint64_t offset, uint64_t size) {
  std::string bytes(size, '\0');
  if (source.ReadAt(offset, bytes) != size)
    throw DataError(fmt::format("[io.table] {}: is truncated; copy the file again", source.name()));
  return bytes;
}

}  // namespace

void LeveldbTableReader::Refuse(std::string_view what) const {
  throw DataError(fmt::format("[io.table] {}: {}", source_.name(), what));
}

LeveldbTableReader::Handle LeveldbTableReader::TakeHandle(std::string_view& bytes) const {
  Handle handle;
  if (!TakeVarint(bytes, handle.offset) || !TakeVarint(bytes, handle.size))
    Refuse("has a damaged block handle");
  if (handle.offset > content_bytes_ || handle.size > content_bytes_ - handle.offset ||
      content_bytes_ - handle.offset - handle.size < kTrailerBytes) {
    Refuse(fmt::format("block out of bounds: got {} bytes at byte {} in a file of {} bytes",
                       handle.size, handle.offset, content_bytes_ + kFooterBytes));
  }
  return handle;
}

LeveldbTableReader::LeveldbTableReader(const Source& source) : source_(source) {
  const uint64_t bytes = source.size().value_or(0);
  if (bytes < kFooterBytes)
    Refuse(
        fmt::format("too short for a table: got {} bytes, want at least {}", bytes, kFooterBytes));
  content_bytes_ = bytes - kFooterBytes;
  const std::string footer = ReadExactly(source, content_bytes_, kFooterBytes);
  if (!footer.ends_with(kTableMagic))
    Refuse("does not end with a table's magic number; is it truncated?");
  std::string_view handles = std::string_view(footer).substr(0, kHandlesBytes);
  TakeHandle(handles);  // the metaindex block, which TensorFlow leaves empty
  const Handle index = TakeHandle(handles);
  uint64_t end = 0;  // of the previous block
  VisitBlock(ReadBlock(index), [&](std::string_view, std::string_view value) {
    blocks_.push_back(TakeHandle(value));
    if (blocks_.back().offset < end) Refuse("blocks overlap");
    end = blocks_.back().offset + blocks_.back().size;
  });
}

std::string LeveldbTableReader::ReadBlock(size_t index) const {
  return ReadBlock(blocks_.at(index));
}

std::string LeveldbTableReader::ReadBlock(const Handle& handle) const {
  std::string block = ReadExactly(source_, handle.offset, handle.size + kTrailerBytes);
  const std::string_view checked = std::string_view(block).substr(0, handle.size + 1);
  const auto want = LoadLittleEndian<uint32_t>(block.data() + checked.size());
  if (const uint32_t got = MaskedCrc32c(checked); got != want) {
    Refuse(
        fmt::format("block at byte {}: checksum mismatch: got {:#010x}, want {:#010x}; copy the "
                    "file again",
                    handle.offset, got, want));
  }
  const char compression = checked.back();
  block.resize(handle.size);
  if (compression == kPlain) return block;
  if (compression != kSnappy) {
    Refuse(fmt::format("block at byte {}: unknown compression: got {}, want 0 (none) or 1 (Snappy)",
                       handle.offset, static_cast<int>(compression)));
  }
  const auto refuse = [&](std::string_view what) {
    Refuse(fmt::format("block at byte {}: compressed block: {}", handle.offset, what));
  };
  size_t bytes = 0;
  if (!snappy::GetUncompressedLength(block.data(), block.size(), &bytes))
    refuse("has a malformed length");
  if (bytes > block.size() * kMaxSnappyRatio) refuse("declares a length that it cannot reach");
  std::string plain(bytes, '\0');
  if (!snappy::RawUncompress(block.data(), block.size(), plain.data()))
    refuse(fmt::format("is damaged: it does not give the {} bytes that it declares", bytes));
  return plain;
}

void LeveldbTableReader::VisitBlock(std::string_view block, const VisitEntry& visit) const {
  const auto bad = [this] { Refuse("has a damaged block"); };
  if (block.size() < sizeof(uint32_t)) bad();
  const uint64_t restarts = LoadLittleEndian<uint32_t>(block.end() - sizeof(uint32_t));
  if (restarts > block.size() / sizeof(uint32_t) - 1) bad();
  block.remove_suffix((restarts + 1) * sizeof(uint32_t));
  std::string key;
  while (!block.empty()) {
    uint64_t shared = 0, unshared = 0, value_bytes = 0;
    if (!TakeVarint(block, shared) || !TakeVarint(block, unshared) ||
        !TakeVarint(block, value_bytes) || shared > key.size() || unshared > block.size() ||
        value_bytes > block.size() - unshared) {
      bad();
    }
    if (shared + unshared > kMaxKeyBytes)
      Refuse(fmt::format("has a key of more than {} bytes", kMaxKeyBytes));
    key.resize(shared);
    key += block.substr(0, unshared);
    visit(key, block.substr(unshared, value_bytes));
    block.remove_prefix(unshared + value_bytes);
  }
}

void LeveldbTableReader::Visit(const VisitEntry& visit) const {
  for (const Handle& handle : blocks_) VisitBlock(ReadBlock(handle), visit);
}

void LeveldbTableWriter::Block::Add(std::string_view key, std::string_view value) {
  if (since_restart == kRestartInterval) {
    restarts.push_back(static_cast<uint32_t>(bytes.size()));
    since_restart = 0;
  }
  const size_t shared = since_restart == 0 ? 0 : SharedPrefix(last_key, key);
  AppendVarint(bytes, shared);
  AppendVarint(bytes, key.size() - shared);
  AppendVarint(bytes, value.size());
  bytes += key.substr(shared);
  bytes += value;
  last_key = key;
  ++since_restart;
}

void LeveldbTableWriter::Add(std::string_view key, std::string_view value) {
  CAROLE_CHECK(data_.last_key < key || (data_.bytes.empty() && index_.bytes.empty()),
               "table: keys are not in ascending order: got '{}' after '{}'", key, data_.last_key);
  if (data_.bytes.size() >= kBlockBytes) {
    const std::string last_key = data_.last_key;
    index_.Add(last_key, Flush(data_));
  }
  data_.Add(key, value);
}

std::string LeveldbTableWriter::Flush(Block& block) {
  for (uint32_t restart : block.restarts) AppendLittleEndian(block.bytes, restart);
  AppendLittleEndian(block.bytes, static_cast<uint32_t>(block.restarts.size()));
  std::string handle;
  AppendVarint(handle, offset_);
  AppendVarint(handle, block.bytes.size());
  block.bytes.push_back(kPlain);
  AppendLittleEndian(block.bytes, MaskedCrc32c(block.bytes));
  sink_.Append(block.bytes);
  offset_ += block.bytes.size();
  block = Block{.last_key = std::move(block.last_key)};
  return handle;
}

void LeveldbTableWriter::Finish() {
  if (!data_.bytes.empty()) {
    const std::string last_key = data_.last_key;
    index_.Add(last_key, Flush(data_));
  }
  Block metaindex;
  std::string footer = Flush(metaindex);
  footer += Flush(index_);
  footer.resize(kHandlesBytes, '\0');
  footer += kTableMagic;
  sink_.Append(footer);
}

}  // namespace carole::io
