// Checks every record of a data set's shards, and copies the good records. `carole dataset verify`
// runs it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/datasets/datasets.h"
#include "io/image/image.h"

namespace carole::io {

struct VerifyOptions {
  std::vector<std::filesystem::path> shards;
  const DatasetEntry* dataset = nullptr;  // may be null; then the range of labels is not checked
  int num_classes = 0;                    // of the data set
  int threads = 0;                        // 0: one per core
  // Called from time to time on the calling thread.
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> progress = {};
};

// The location of a record that passed all checks.
struct GoodRecord {
  uint64_t offset = 0;
  uint64_t length = 0;  // of the data in bytes
  int64_t index = 0;    // in the shard
};

struct VerifyReport {
  std::vector<std::filesystem::path> shards;
  std::vector<std::vector<GoodRecord>> good;  // for each shard
  // One message per bad record: "[io.tfrecord] FILE: record 3 at byte 1200: ...", in the order of
  // shards and records. At most 1000 messages per shard are kept.
  std::vector<std::string> bad;
  int64_t num_bad = 0;  // counts all bad records
  int64_t num_good = 0;
  std::map<int64_t, int64_t> class_counts;  // label -> number of good records
  int64_t num_turned = 0;  // good records whose image is not upright by its EXIF data
};

// Reads all shards. Checks each record's framing and both checksums, the Example's features and
// their types, labels and boxes, and that the image can be decoded. A record with the same bytes as
// an earlier one is bad too. After a damaged length it continues at the next valid record; in a
// compressed shard the rest is lost. Throws only DiskError.
VerifyReport VerifyShards(const VerifyOptions& options);

// Checks and creates the folder for WriteRepaired(), before the verification that may take hours.
// Throws UsageError if it is the folder of the shards or if two shards have the same name, and
// DiskError if it cannot be written.
void PrepareRepair(const std::vector<std::filesystem::path>& shards,
                   const std::filesystem::path& folder);

// Writes the good records of each shard to a file of the same name in `folder`, and copies
// labels.txt if there is one. A file becomes visible only when it is complete. Shards without a
// good record are left out; then the copies of a complete -of-N set are renumbered. Throws
// UsageError as PrepareRepair() does, or if the folder holds shards of another set; throws
// DiskError.
void WriteRepaired(const VerifyReport& report, const std::filesystem::path& folder, int threads);

struct CheckedExample {
  int64_t label = 0;
  bool is_turned = false;  // not upright by its EXIF data, which training ignores
};

// Checks that training can use an Example. `dataset` may be null; then the label's range is not
// checked. `image` is scratch memory for decoding. Throws DataError with the feature's name.
CheckedExample CheckExample(std::string_view example, const DatasetEntry* dataset, int num_classes,
                            Image* image);

}  // namespace carole::io
