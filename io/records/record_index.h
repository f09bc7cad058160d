// Where every record of a list of shards lies, so that any record can be read without reading those
// before it.
//
// Built once by reading all headers, then kept in a small file (FORMATS.md) beside the data, or in
// a working folder when the data is read-only. The file is written atomically: ranks that write it
// at once do no harm.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "src/core/files/bytes.h"

namespace carole::io {

// The records of one shard.
struct ShardIndex {
  std::string path;
  uint64_t file_bytes = 0;
  int64_t modified_ns = 0;
  int64_t first_record = 0;       // number, over all shards, of the shard's record 0
  std::vector<uint64_t> offsets;  // of each record, then the end of the last one
  bool damaged = false;           // some "records" are bytes that could not be made out

  int64_t num_records() const { return static_cast<int64_t>(offsets.size()) - 1; }
};

class RecordIndex {
 public:
  struct Entry {
    int shard = 0;
    int64_t index = 0;  // within the shard
    uint64_t offset = 0;
    uint64_t length = 0;  // of the data
  };

  RecordIndex() = default;
  explicit RecordIndex(std::vector<ShardIndex> shards);

  int64_t num_records() const { return num_records_; }
  const std::vector<ShardIndex>& shards() const { return shards_; }

  // record in [0, num_records()).
  Entry Find(int64_t record) const;

 private:
  std::vector<ShardIndex> shards_;
  int64_t num_records_ = 0;
};

struct RecordIndexOptions {
  std::vector<std::filesystem::path> shards;
  std::filesystem::path work_dir;  // second choice for the cache file; may be empty
  int threads = 1;                 // that scan shards
  // Damage that hides where the next record begins becomes one record, which cannot be read; the
  // index is then not cached.
  bool skip_damage = false;
};

// Reads the cached index when name, size and time of every shard still fit; otherwise scans the
// shards and caches the result where it can; a failure to do so is only logged, and this process
// keeps it in memory. Throws DataError for a damaged or empty shard, unless damage is skipped.
RecordIndex LoadRecordIndex(const RecordIndexOptions& options);

// The offsets of ShardIndex, by reading the headers. Throws DataError; but when `damaged` is given,
// it sets it and goes on behind the damage, at the next record; an empty shard is then one record,
// which cannot be read.
std::vector<uint64_t> ScanRecords(const Source& source, bool* damaged = nullptr);

// Reads the bytes of a cache file: false when they are damaged or of other shards. `shards` comes
// with path, size and time filled in and receives the offsets.
bool ParseIndex(std::string_view bytes, std::vector<ShardIndex>& shards);

}  // namespace carole::io
