// Reproducible training: the global batch is cut into a fixed number of shards, whatever the number
// of ranks. Each shard is computed by itself, its batch norm and its loss included, and what shards
// give is summed in one binary tree over all shards. So 1, 2, 4, … ranks make the same weights, bit
// for bit, given CPUs of one kind and as many threads in each rank.
#pragma once

#include <cstdint>
#include <span>

#include "src/train/reduction/pairwise_sum.h"

namespace carole::train {

// How a rank works through its part of the global batch.
struct Shards {
  int64_t rows = 0;      // of a shard: the graph's batch size
  int64_t per_rank = 0;  // shards that each rank computes, one after the other
};

// local_batch: rows of a step, of each of `num_ranks` ranks. Throws UsageError unless both numbers
// are powers of two, there is a shard for every rank, and all shards are equal.
Shards CutIntoShards(int64_t local_batch, int64_t num_ranks, int64_t num_shards);

// The moving statistics of batch norm in such a step: every shard moves them from where the step
// found them, and the step ends with the mean of what the shards made of them.
template <typename T>
class ShardStatistics {
 public:
  // The memory that the kernels read and write.
  ShardStatistics(std::span<T> statistics, const Vectors<T>& memory)
      : statistics_(statistics),
        memory_(memory),
        before_(memory.Allocate(statistics.size())),
        sum_(memory) {}

  void BeginStep();
  // After the last shard the memory holds the sum over this rank's shards.
  void EndShard(bool is_last);

 private:
  std::span<T> statistics_;
  Vectors<T> memory_;
  DeviceMemory before_;
  PairwiseSum<T> sum_;
};

}  // namespace carole::train
