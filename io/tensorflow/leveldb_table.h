// LevelDB's tables: sorted strings in blocks, the container of TensorFlow's checkpoints
// (FORMATS.md has the bytes).
//
// Reading expects hostile files: every size is checked against what the file has before anything is
// allocated, blocks must follow one another, checksums are verified. Throws DataError.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/files/bytes.h"

namespace carole::io {

// Ends every table.
inline constexpr std::string_view kTableMagic = "\x57\xfb\x80\x8b\x24\x75\x47\xdb";

// Keys come sorted. The views live as long as the call.
using VisitEntry = std::function<void(std::string_view key, std::string_view value)>;

// `source` must outlive it.
class LeveldbTableReader {
 public:
  // Reads footer and index.
  explicit LeveldbTableReader(const Source& source);

  // Verifies and, where compressed, unpacks one block.
  size_t num_blocks() const { return blocks_.size(); }
  std::string ReadBlock(size_t index) const;

  // Entries of a block that ReadBlock() gave.
  void VisitBlock(std::string_view block, const VisitEntry& visit) const;
  // All entries of the table.
  void Visit(const VisitEntry& visit) const;

 private:
  struct Handle {
    uint64_t offset = 0, size = 0;
  };

  [[noreturn]] void Refuse(std::string_view what) const;
  Handle TakeHandle(std::string_view& bytes) const;
  std::string ReadBlock(const Handle& handle) const;

  const Source& source_;
  uint64_t content_bytes_ = 0;  // of the file, without footer
  std::vector<Handle> blocks_;
};

// Writes a table that is not compressed.
class LeveldbTableWriter {
 public:
  explicit LeveldbTableWriter(Sink& sink) : sink_(sink) {}
  // Keys must ascend bytewise.
  void Add(std::string_view key, std::string_view value);
  // Ends the table; does not commit the sink.
  void Finish();

 private:
  // A block being filled.
  struct Block {
    std::string bytes;
    std::vector<uint32_t> restarts{0};
    std::string last_key;
    int since_restart = 0;

    void Add(std::string_view key, std::string_view value);
  };

  // Appends the block to the sink; returns its encoded handle and empties it.
  std::string Flush(Block& block);

  Sink& sink_;
  uint64_t offset_ = 0;
  Block data_, index_;
};

}  // namespace carole::io
