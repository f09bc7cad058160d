// Examples to the shards of a split: on all cores, each shard appearing when it is whole, so that a
// run that was stopped goes on with the shards that are missing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace carole::io {

struct ShardPlan {
  std::filesystem::path folder;  // made when it is not there
  std::string stem;              // "train-", with its last character
  std::string suffix;            // ".tfrecord" or nothing
  bool is_one_file = false;      // of one shard, whose name is the stem
  // Shard s holds the examples [starts[s], starts[s + 1]).
  std::vector<int64_t> starts;
  // One line with all that decides what the shards hold. Shards of another build are refused.
  std::string recipe;
  int64_t max_bad = 0;  // examples that may be left out
  int threads = 0;      // 0: one for each core
  // Called now and then from the calling thread. done counts the shards found as well.
  std::function<void(int64_t done, int64_t total)> progress;

  int num_shards() const { return static_cast<int>(starts.size()) - 1; }
  int64_t count(int shard) const { return starts[shard + 1] - starts[shard]; }
};

// "train-00003-of-01024", or the one file.
std::filesystem::path ShardPath(const ShardPlan& plan, int shard);

// Bounds of `count` parts of [first, last) as numpy.linspace(first, last, count + 1).astype(int)
// has them.
std::vector<int64_t> LinearParts(int64_t first, int64_t last, int count);

// Bounds of shards as TF-Slim's ImageNet tool with its 8 threads has them: 8 parts, each parted
// again; a number of shards that 8 does not divide is parted at once.
std::vector<int64_t> ShardStarts(int64_t count, int num_shards);

// Throws UsageError when the folder holds shards of another recipe.
void CheckShards(const ShardPlan& plan);

// Writes the shards that are not there. make(i) gives serialized example i, on any thread, or
// throws DataError: each such is logged, all of them before more than max_bad end the build; their
// shards are then not written. Throws UsageError as CheckShards() does, and for an empty shard.
void WriteShards(const ShardPlan& plan, const std::function<std::string(int64_t)>& make);

}  // namespace carole::io
