// The offset of every record in a list of shards, so that any record can be read without reading
// the records before it.
//
// The index is built once by reading all record headers. It is then cached in a small file
// (io/records/FORMATS.md) next to the data, or in a working folder if the data is read-only. The
// file is written atomically, so several ranks may write it at the same time.
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
  int64_t first_record = 0;       // number of this shard's record 0, counted over all shards
  std::vector<uint64_t> offsets;  // of each record, then the end of the last one
  bool damaged = false;           // some "records" are damaged bytes (RecordIndexOptions)

  int64_t num_records() const { return static_cast<int64_t>(offsets.size()) - 1; }
};

// Maps a record's number over all shards to its location.
class RecordIndex {
 public:
  struct Entry {
    int shard = 0;        // index into shards()
    int64_t index = 0;    // of the record within the shard
    uint64_t offset = 0;  // of the record in the shard's (inflated) bytes
    uint64_t length = 0;  // of the record's data in bytes
  };

  RecordIndex() = default;
  explicit RecordIndex(std::vector<ShardIndex> shards);

  int64_t num_records() const { return num_records_; }
  const std::vector<ShardIndex>& shards() const { return shards_; }

  // Locates a record in [0, num_records()).
  Entry Find(int64_t record) const;

 private:
  std::vector<ShardIndex> shards_;
  int64_t num_records_ = 0;
};

struct RecordIndexOptions {
  std::vector<std::filesystem::path> shards;
  std::filesystem::path work_dir;  // second choice for the cache file; may be empty
  int threads = 1;                 // number of threads that scan shards
  // Whether to continue after a damaged header. The bytes up to the next valid header then count as
  // one record, which cannot be read. A file of 0 bytes is then a shard without records. Such an
  // index is not cached.
  bool skip_damage = false;
};

// Returns the cached index if name, size and modification time of every shard are unchanged.
// Otherwise scans the shards and caches the result. If no cache file can be written, that is
// logged, and this process keeps the index in memory. Throws DataError if a shard is damaged or is
// a file of 0 bytes, unless skip_damage, and if there is no record at all; throws DiskError.
RecordIndex LoadRecordIndex(const RecordIndexOptions& options);

// Reads all record headers and returns ShardIndex::offsets. Throws DataError if a header is
// damaged. If `damaged` is given, sets *damaged instead and continues at the next valid header.
std::vector<uint64_t> ScanRecords(const Source& source, bool* damaged = nullptr);

// Parses the bytes of a cache file. `shards` holds path, size and time of the shards and receives
// their offsets. Returns false if the bytes are damaged or describe other shards.
bool ParseIndex(std::string_view bytes, std::vector<ShardIndex>& shards);

}  // namespace carole::io
