// Reproducible training: 1, 2, 4, ... ranks compute the same weights, bit for bit. The global batch
// is split into a fixed number of shards, whatever the number of ranks. Each shard is computed
// separately, with its own batch norm and loss, and the results are summed in one binary tree over
// all shards. All ranks need CPUs of the same kind and the same number of threads.
// reproducible.cpp explains why the sums are equal.
#pragma once

#include <cstdint>
#include <span>

#include "src/train/reduction/pairwise_sum.h"

namespace carole::train {

// How a rank processes its part of the global batch.
struct Shards {
  int64_t rows = 0;      // per shard: the batch size of the graph
  int64_t per_rank = 0;  // shards that each rank computes, one after the other
};

// Splits the global batch, which has `local_batch` rows per step on each of `num_ranks` ranks, into
// `num_shards` equal shards.
// Throws UsageError if the number of ranks or shards is not a power of two, if there are fewer
// shards than ranks, or if the rows cannot be split equally.
Shards SplitIntoShards(int64_t local_batch, int64_t num_ranks, int64_t num_shards);

// The running statistics of batch norm in a reproducible step. Every shard updates them from their
// values at the start of the step. The step ends with the mean of the shards' results.
template <typename T>
class ShardStatistics {
 public:
  // `statistics` is the memory that kernels read and update; not owned. `vector_ops` says whose
  // memory it is.
  ShardStatistics(std::span<T> statistics, const VectorOps<T>& vector_ops)
      : statistics_(statistics),
        vector_ops_(vector_ops),
        before_(vector_ops.Allocate(statistics.size())),
        sum_(vector_ops) {}

  // Saves the statistics at the start of a step.
  void BeginStep();
  // Takes the result of a shard. Then puts back the saved values for the next shard; or, after the
  // last shard, puts the sum over this rank's shards into `statistics`.
  void EndShard(bool is_last);

 private:
  std::span<T> statistics_;
  VectorOps<T> vector_ops_;
  DeviceMemory before_;
  PairwiseSum<T> sum_;
};

}  // namespace carole::train
