#include "io/records/sharding.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "src/core/check.h"
#include "src/core/divide_up.h"
#include "src/core/rng.h"

namespace carole::io {
namespace {

// Fisher-Yates.
void Shuffle(std::span<uint32_t> values, Rng& rng) {
  for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[rng.NextBelow(i)]);
}

}  // namespace

EpochOrder::EpochOrder(int64_t num_records, const OrderOptions& options, int64_t epoch)
    : num_records_(num_records) {
  CAROLE_CHECK(num_records >= 0 && num_records <= std::numeric_limits<uint32_t>::max(),
               "{} records cannot be shuffled", num_records);
  CAROLE_CHECK(options.block_records >= 0, "blocks of {} records", options.block_records);
  if (!options.shuffle) return;
  order_.resize(static_cast<size_t>(num_records));
  Rng rng(options.seed, RngPurpose::kShuffle, static_cast<uint64_t>(epoch));
  if (options.block_records == 0) {
    std::iota(order_.begin(), order_.end(), 0u);
    Shuffle(std::span(order_), rng);
    return;
  }
  const auto block = static_cast<size_t>(options.block_records);
  std::vector<uint32_t> runs(DivideUp(order_.size(), block));
  std::iota(runs.begin(), runs.end(), 0u);
  Shuffle(std::span(runs), rng);
  size_t place = 0;
  for (const uint32_t run : runs) {
    const size_t begin = run * block;
    const size_t count = std::min(block, order_.size() - begin);
    std::iota(order_.begin() + place, order_.begin() + place + count, static_cast<uint32_t>(begin));
    place += count;
  }
  const auto window = static_cast<size_t>(options.window_records());
  for (size_t begin = 0; begin < order_.size(); begin += window)
    Shuffle(std::span(order_).subspan(begin, std::min(window, order_.size() - begin)), rng);
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
