// LevelDB tables: sorted key-value pairs in blocks. TensorFlow's checkpoints use this container.
// FORMATS.md describes the bytes.
//
// Files that are read may be hostile. Every size is checked against the size of the file before
// memory is allocated, blocks must not overlap, and checksums are verified. Every function of the
// reader throws DataError if the table is damaged.
//
// The reader is our own, because LevelDB's reader trusts what a table says, even with
// paranoid_checks. A table of about 100 bytes with valid checksums
//   - crashes LevelDB 1.23 if the lengths of a key and a value overflow 32 bits together,
//   - crashes it if a block handle has a size of 2^64 - 5,
//   - makes it throw std::bad_alloc for a size of 2^62, which it allocates before it reads,
//   - makes it allocate 4 GiB if a Snappy block declares that length.
// Blocks are decompressed with Snappy's library, which checks all lengths.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/files/bytes.h"

namespace carole::io {

// The last bytes of every table.
inline constexpr std::string_view kTableMagic = "\x57\xfb\x80\x8b\x24\x75\x47\xdb";

// Called for each entry, in the order of the keys. The views are valid during the call.
using VisitEntry = std::function<void(std::string_view key, std::string_view value)>;

// Reads a table.
class LeveldbTableReader {
 public:
  // Reads footer and index. `source` must outlive the reader.
  explicit LeveldbTableReader(const Source& source);

  size_t num_blocks() const { return blocks_.size(); }
  // Reads one block, verifies its checksum, and decompresses it if needed.
  std::string ReadBlock(size_t index) const;

  // Calls `visit` for each entry of a block that ReadBlock() returned.
  void VisitBlock(std::string_view block, const VisitEntry& visit) const;
  // Calls `visit` for each entry of the table.
  void Visit(const VisitEntry& visit) const;

 private:
  // Location of a block; the size is without the 5 bytes of compression type and checksum.
  struct Handle {
    uint64_t offset = 0, size = 0;
  };

  [[noreturn]] void Refuse(std::string_view what) const;  // throws DataError
  // Parses a handle and removes it from `bytes`.
  Handle TakeHandle(std::string_view& bytes) const;
  std::string ReadBlock(const Handle& handle) const;

  const Source& source_;
  uint64_t content_bytes_ = 0;  // size of the file without the footer
  std::vector<Handle> blocks_;
};

// Writes an uncompressed table.
class LeveldbTableWriter {
 public:
  // `sink` must outlive the writer.
  explicit LeveldbTableWriter(Sink& sink) : sink_(sink) {}
  // Appends an entry. Keys must ascend in byte order.
  void Add(std::string_view key, std::string_view value);
  // Writes index and footer. Does not commit the sink.
  void Finish();

 private:
  // A block that is being filled.
  struct Block {
    std::string bytes;
    std::vector<uint32_t> restarts{0};  // offsets of entries that share nothing with the key before
    std::string last_key;
    int since_restart = 0;  // entries since the last restart

    void Add(std::string_view key, std::string_view value);
  };

  // Appends the block to the sink, empties it, and returns its encoded handle.
  std::string Flush(Block& block);

  Sink& sink_;
  uint64_t offset_ = 0;
  Block data_, index_;
};

}  // namespace carole::io
