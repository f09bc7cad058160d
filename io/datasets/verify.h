// Checks every record of a data set's shards, and copies what is good.
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
  const DatasetEntry* dataset = nullptr;  // may be null: labels are then not bounded
  int num_classes = 0;                    // of the dataset
  int threads = 0;                        // 0: one for each core
  // Called now and then from the calling thread.
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> progress = {};
};

struct GoodRecord {
  uint64_t offset = 0;
  uint64_t length = 0;  // of the data
  int64_t index = 0;
};

struct VerifyReport {
  std::vector<std::filesystem::path> shards;
  std::vector<std::vector<GoodRecord>> good;  // of each shard
  // "[io.tfrecord] FILE: record 3 at byte 1200: WHAT", in the order of shards and records; all are
  // counted, the first 1000 of a shard kept.
  std::vector<std::string> bad;
  int64_t num_bad = 0;
  int64_t num_good = 0;
  std::map<int64_t, int64_t> class_counts;  // label -> good records
};

// Reads all shards and checks framing and both CRCs, the Example's fields and their types, labels,
// boxes, and that the picture decodes; a record with the bytes of an earlier one is bad too. Behind
// a damaged length the next whole record is looked for (in a compressed shard the rest is lost).
// Throws DiskError only.
VerifyReport VerifyShards(const VerifyOptions& options);

// Makes the folder that WriteRepaired() will write to, so that it is no surprise after hours.
// Throws UsageError when it is the shards' own or two of them have one name, DiskError when it
// cannot be written.
void PrepareRepair(const std::vector<std::filesystem::path>& shards,
                   const std::filesystem::path& folder);

// Writes the good records of each shard to a file of the same name in `folder`, which must not be
// theirs, and labels.txt where there is one. Each file appears when it is whole. Shards without a
// good record are left out; those of a whole -of-N set are then counted anew. Throws UsageError,
// DiskError.
void WriteRepaired(const VerifyReport& report, const std::filesystem::path& folder, int threads);

// Throws DataError that names the feature, for an Example that training could not use. `image` is
// memory to decode to. Returns the label.
int64_t CheckExample(std::string_view example, const DatasetEntry* dataset, int num_classes,
                     Image* image);

}  // namespace carole::io
