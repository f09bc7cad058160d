#include "io/sharding.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "src/core/check.h"
#include "src/core/rng.h"

namespace carole::io {

EpochOrder::EpochOrder(int64_t num_records, bool shuffle, uint64_t seed, int64_t epoch)
    : num_records_(num_records) {
  CAROLE_CHECK(num_records >= 0 && num_records <= std::numeric_limits<uint32_t>::max(),
               "{} records cannot be shuffled", num_records);
  if (!shuffle) return;
  order_.resize(static_cast<size_t>(num_records));
  std::iota(order_.begin(), order_.end(), 0u);
  Rng rng(seed, RngPurpose::kShuffle, static_cast<uint64_t>(epoch));
  for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[rng.NextBelow(i)]);
}

BatchShare ShareOf(const Sharing& sharing, int64_t epoch, int64_t position) {
  CAROLE_CHECK(sharing.local_batch > 0 && sharing.rank >= 0 && sharing.rank < sharing.size,
               "rank {} of {} with batches of {}", sharing.rank, sharing.size, sharing.local_batch);
  CAROLE_CHECK(position >= 0 && position < sharing.num_records, "position {} in an epoch of {}",
               position, sharing.num_records);
  const int64_t end = std::min(position + sharing.global_batch(), sharing.num_records);
  const int64_t first = position + sharing.rank * sharing.local_batch;
  return {.epoch = epoch,
          .position = position,
          .global_valid = end - position,
          .first = first,
          .valid = std::clamp<int64_t>(end - first, 0, sharing.local_batch)};
}

DataPosition After(const Sharing& sharing, const BatchShare& share) {
  const int64_t end = share.position + share.global_valid;
  if (end < sharing.num_records) return {share.epoch, end};
  return {share.epoch + 1, 0};
}

}  // namespace carole::io
