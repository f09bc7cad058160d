// How the records of an epoch are ordered and divided among ranks.
//
// The problem. N ranks train together on S shards of records. Five things must hold:
//   1. Each record is seen exactly once per epoch, for any N and any S.
//   2. N ranks with local batch B see the same global batches as one rank with batch N*B. Then the
//      number of ranks changes the speed and not the result.
//   3. A run can be resumed at any position, on another number of ranks too.
//   4. Ranks do not communicate to agree on the order.
//   5. All ranks execute the same number of steps, or a collective would wait forever.
// The usual simple form, which gives each rank a subset of the shards, fails at once: shards differ
// in size, S may be smaller than N, and another N gives other batches.
//
// The order. EpochOrder is a permutation of the record numbers 0 .. num_records-1. It depends only
// on (seed, epoch), through the counter-based generator of rng.h, so every rank computes it alone.
// It takes 4 bytes per record (1,281,167 records of ImageNet: 5 MB). A full shuffle is
// Fisher-Yates: all permutations are equally likely. Apart from the seed, the state of the data is
// two numbers, DataPosition{epoch, position}. A checkpoint stores only these.
//
// The division. The global batch at `position` is the next size * local_batch entries of the order.
// Rank r takes the r-th slice of local_batch entries. Example: 10 records, 2 ranks, local_batch 3,
// and the order of this epoch is 7 2 9 4 0 5 | 1 8 3 6:
//
//   position   rank 0 reads   rank 1 reads    global_valid   valid (rank 0, rank 1)
//       0      7 2 9          4 0 5                6              3, 3
//       6      1 8 3          6 (1 8)              4              3, 1
//
// The second batch is short. Rank 1 still needs three rows, because shapes are fixed and batch
// statistics must stay sensible. Its rows 1 and 2 repeat the batch from its beginning, which is
// what the modulo in PositionOf() does: positions 9, 6, 7. They have weight 0 in the loss, which
// divides by global_valid. A rank may have no valid row at all, and still takes part in the step.
// With 3 ranks and local batch 2 the batches of this epoch are again 7 2 9 4 0 5 and 1 8 3 6.
//
// The block shuffle. A full shuffle reads one record from a random offset each time. That is slow
// on a disk that needs long to seek. With block_records = b the order is made in two steps:
//   1. Divide the records into blocks of b consecutive records and shuffle the blocks.
//   2. Shuffle the records within each window of 16 blocks (kBlocksPerWindow).
// The reader then needs only 16 long blocks at a time, and can request them ahead. Example with
// b = 2, 8 records and, to keep it short, windows of 2 blocks:
//   blocks             0 1 | 2 3 | 4 5 | 6 7
//   shuffled blocks    4 5 | 0 1 | 6 7 | 2 3
//   shuffled windows   0 4 5 1 | 3 6 2 7
// The last block may be short. It can be moved to any place, so a window may touch 17 blocks.
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

// The Fisher-Yates shuffle.
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
  const auto block_records = static_cast<size_t>(options.block_records);
  std::vector<uint32_t> blocks(DivideUp(order_.size(), block_records));
  std::iota(blocks.begin(), blocks.end(), 0u);
  Shuffle(std::span(blocks), rng);
  size_t position = 0;
  for (const uint32_t index : blocks) {
    const size_t begin = index * block_records;
    const size_t count = std::min(block_records, order_.size() - begin);
    std::iota(order_.begin() + position, order_.begin() + position + count,
              static_cast<uint32_t>(begin));
    position += count;
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

DataPosition PositionAfter(const Sharing& sharing, const BatchShare& share) {
  const int64_t end = share.position + share.global_valid;
  if (end < sharing.num_records) return {share.epoch, end};
  return {share.epoch + 1, 0};
}

}  // namespace carole::io
