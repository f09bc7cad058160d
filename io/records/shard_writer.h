// Writes the examples of a split to TFRecord shards, on all cores. A shard becomes visible only
// when it is complete, so a build that was stopped continues with the missing shards.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace carole::io {

// The shards of one split: where they go and which examples they hold.
struct ShardPlan {
  std::filesystem::path folder;  // is created if it does not exist
  std::string stem;              // the names' first part with its separator: "train-"
  std::string suffix;            // ".tfrecord" or empty
  bool is_single_file = false;   // the split is one file, and `stem` is its whole name
  // Shard s holds the examples [starts[s], starts[s + 1]).
  std::vector<int64_t> starts;
  // One line that contains everything that determines the shards' content. It is stored next to the
  // shards. Shards of a build with another description are refused.
  std::string build_description;
  int64_t max_bad = 0;  // examples that may fail and are then left out
  int threads = 0;      // 0: one per core
  // Called from time to time on the calling thread. `done` counts examples, including those in the
  // shards that existed before.
  std::function<void(int64_t done, int64_t total)> progress;

  int num_shards() const { return static_cast<int>(starts.size()) - 1; }
  int64_t count(int shard) const { return starts[shard + 1] - starts[shard]; }
};

// Returns the path of a shard: FOLDER/train-00003-of-01024, or the single file.
std::filesystem::path ShardPath(const ShardPlan& plan, int shard);

// Divides [first, last) into `count` parts. Returns their count + 1 bounds, which equal
// numpy.linspace(first, last, count + 1).astype(int).
std::vector<int64_t> LinspaceBounds(int64_t first, int64_t last, int count);

// Divides `count` examples into shards as TF-Slim's ImageNet tool does, which has 8 threads: into 8
// parts, and each part into shards. If num_shards is not a multiple of 8, the examples are divided
// in one step. Returns the num_shards + 1 bounds.
std::vector<int64_t> ShardStarts(int64_t count, int num_shards);

// Throws UsageError if the folder holds shards of another build.
void CheckShards(const ShardPlan& plan);

// Writes the shards that do not exist yet. make(i) returns the serialized example i; it is called
// on several threads. If it throws DataError, the error is logged and the example is left out.
// Returns the numbers of these examples, sorted.
//
// Throws DataError if more than max_bad examples fail. The build first tries all other examples, so
// that all errors are logged. It does not write the shards in which an example failed. Throws
// UsageError as CheckShards() does, and if a shard would be empty.
std::vector<int64_t> WriteShards(const ShardPlan& plan,
                                 const std::function<std::string(int64_t)>& make);

}  // namespace carole::io
