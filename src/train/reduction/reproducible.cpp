#include "src/train/reduction/reproducible.h"

#include <fmt/format.h>

#include <bit>

#include "src/core/error.h"

namespace carole::train {

Shards CutIntoShards(int64_t local_batch, int64_t num_ranks, int64_t num_shards) {
  const auto is_power_of_two = [](int64_t n) {
    return n > 0 && std::has_single_bit(static_cast<uint64_t>(n));
  };
  const int64_t global_batch = local_batch * num_ranks;
  if (!is_power_of_two(num_ranks) || !is_power_of_two(num_shards) || num_shards < num_ranks ||
      global_batch % num_shards != 0) {
    throw UsageError(
        fmt::format("[train] --reproducible: got {} ranks and a global batch of {} in {} shards, "
                    "want powers of two, no more ranks than shards, and shards of one size; choose "
                    "--reproducible_shards and --batch_size so",
                    num_ranks, global_batch, num_shards));
  }
  return {.rows = global_batch / num_shards, .per_rank = num_shards / num_ranks};
}

template <typename T>
void ShardStatistics<T>::BeginStep() {
  memory_.Copy(reinterpret_cast<T*>(before_.get()), statistics_.data(), statistics_.size());
  sum_.Clear();
}

template <typename T>
void ShardStatistics<T>::EndShard(bool is_last) {
  if (is_last) return sum_.Finish(0, statistics_);
  sum_.Add(statistics_);
  memory_.Copy(statistics_.data(), reinterpret_cast<const T*>(before_.get()), statistics_.size());
}

template class ShardStatistics<float>;
template class ShardStatistics<double>;

}  // namespace carole::train
