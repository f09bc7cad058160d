// Why the sum is the same for any number of ranks.
//
// Task. Floating-point addition is not associative: (a + b) + c and a + (b + c) differ in the last
// bits. So a gradient that is summed over 4 ranks differs from the one that 1 rank computes, and
// after some steps the weights differ visibly. Reproducible training must give equal weights, bit
// for bit, on 1, 2, 4, ... ranks.
//
// Layout. The global batch is split into S shards. S is a power of two and does not depend on the
// number of ranks N. Shard s is a fixed set of rows. A rank computes S / N consecutive shards, one
// after the other, each as a micro-batch. Its kernels always see the same rows, so a shard's
// gradient has the same bits on every rank (with CPUs of one kind and equal thread counts).
//
// Order of additions. All shards are leaves of one binary tree, and every inner node adds its two
// children. The rank adds its own shards (PairwiseSum); the all-reduce over ranks then continues
// the same tree: "shared_memory" on one host and "tree" on several hosts do so, and NCCL between
// GPUs, one level of the tree at a time (collectives/nccl/loader.cpp). Example: S = 8.
//
//                     ((g0+g1)+(g2+g3)) + ((g4+g5)+(g6+g7))
//        1 rank       `----------------- rank 0 ----------------'
//        2 ranks      `---- rank 0 ----'   `---- rank 1 ----'
//        4 ranks      `rank 0' `rank 1'     `rank 2' `rank 3'
//
// With 4 ranks, rank 1 computes g2+g3 itself, and the all-reduce computes the rest. Each rank's
// part is a whole subtree only if N and S are powers of two and N <= S; SplitIntoShards() checks
// that. Simpler forms fail here. A running sum g0, g0+g1, (g0+g1)+g2, ... has no subtree that a
// second rank could compute alone. A ring adds the ranks of each chunk in another order.
//
// These values are summed in this way:
//   gradients            PairwiseSum over micro-batches in GradientReduction, then the all-reduce
//   losses               PairwiseSum over micro-batches in StepLosses, then the all-reduce
//   running statistics   ShardStatistics below, then the all-reduce
//
// Batch norm normalizes each shard by the shard's own mean and variance, so no number passes
// between shards in forward. Its running statistics need care: shard 1 must not start from what
// shard 0 has made of them, as another rank may compute shard 1. So each shard starts from the
// values at the start of the step, and the step ends with the mean over the shards. Example with
// decay 0.9, running mean 1 and shard means 2 and 4:
//   shard 0: 0.9 * 1 + 0.1 * 2 = 1.1     shard 1: 0.9 * 1 + 0.1 * 4 = 1.3     mean: 1.2
// That is also what one batch of both shards would give, as the update of the mean is linear.
//
// The last batch of an epoch may be short. Then some shards have few samples and some have none.
// All S shards are computed all the same, so the tree keeps its form.
#include "src/train/reduction/reproducible.h"

#include <fmt/format.h>

#include <bit>

#include "src/core/error.h"

namespace carole::train {

Shards SplitIntoShards(int64_t local_batch, int64_t num_ranks, int64_t num_shards) {
  const auto is_power_of_two = [](int64_t n) {
    return n > 0 && std::has_single_bit(static_cast<uint64_t>(n));
  };
  const int64_t global_batch = local_batch * num_ranks;
  if (!is_power_of_two(num_ranks) || !is_power_of_two(num_shards) || num_shards < num_ranks ||
      global_batch % num_shards != 0) {
    throw UsageError(
        {.tag = "train",
         .option = "reproducible",
         .got = fmt::format("{} ranks and a global batch of {} in {} shards", num_ranks,
                            global_batch, num_shards),
         .want = "powers of two, no more ranks than shards, and shards of equal size",
         .hint = "change " + Option("reproducible_shards") + " or " + Option("batch_size")});
  }
  return {.rows = global_batch / num_shards, .per_rank = num_shards / num_ranks};
}

template <typename T>
void ShardStatistics<T>::BeginStep() {
  vector_ops_.Copy(reinterpret_cast<T*>(before_.get()), statistics_.data(), statistics_.size());
  sum_.Clear();
}

template <typename T>
void ShardStatistics<T>::EndShard(bool is_last) {
  if (is_last) return sum_.Finish(0, statistics_);
  sum_.Add(statistics_);
  vector_ops_.Copy(statistics_.data(), reinterpret_cast<const T*>(before_.get()),
                   statistics_.size());
}

template class ShardStatistics<float>;
template class ShardStatistics<double>;

}  // namespace carole::train
