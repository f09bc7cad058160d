// Decides which records a rank reads, as pure functions of (seed, epoch, position, rank, size).
// PyTorch's DistributedSampler has the same task.
//
// An epoch visits a permutation of all records. Each global batch takes the next size * local_batch
// entries of the permutation, and rank r takes the r-th slice of local_batch entries. The essay in
// sharding.cpp explains the consequences with an example.
//
// Words: a *record* is a number from 0 to num_records - 1, over all shards. A *position* is an
// index into the epoch's permutation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace carole::io {

struct OrderOptions {
  bool shuffle = false;  // false: the records' own order
  // 0: every permutation is equally likely. Otherwise a block shuffle: blocks of this many
  // consecutive records are shuffled, then the records within each window of kBlocksPerWindow
  // blocks. A disk with slow seeks then reads a few long blocks at a time.
  int64_t block_records = 0;
  uint64_t seed = 0;

  static constexpr int64_t kBlocksPerWindow = 16;
  int64_t window_records() const { return block_records * kBlocksPerWindow; }
};

// The order in which an epoch visits the records: maps a position to a record.
class EpochOrder {
 public:
  // Makes a permutation of num_records (less than 2^32) records, keyed by (seed, epoch). Without
  // `shuffle` it is the identity.
  EpochOrder(int64_t num_records, const OrderOptions& options, int64_t epoch);

  int64_t size() const { return num_records_; }
  int64_t operator[](int64_t position) const {
    return order_.empty() ? position : order_[static_cast<size_t>(position)];
  }

 private:
  int64_t num_records_;
  std::vector<uint32_t> order_;  // empty for the identity
};

// How the ranks divide each epoch among themselves.
struct Sharing {
  int64_t num_records = 0;
  int64_t local_batch = 0;  // samples per rank and step
  int rank = 0;
  int size = 1;

  int64_t global_batch() const { return local_batch * size; }
};

// One rank's rows of one global batch.
struct BatchShare {
  int64_t epoch = 0;
  int64_t position = 0;      // where the global batch begins in the epoch
  int64_t global_valid = 0;  // samples in the global batch: fewer than global_batch() at epoch end
  int64_t first = 0;         // position of this rank's row 0
  int64_t valid = 0;         // rows that count on this rank: rows 0 to valid - 1

  // Returns the position of a row of this rank. Rows that do not count repeat the samples of the
  // global batch, from its beginning.
  int64_t PositionOf(int64_t row) const {
    return position + (first - position + row) % global_valid;
  }
};

// Returns this rank's share of the global batch that begins at `position` in [0, num_records).
BatchShare ShareOf(const Sharing& sharing, int64_t epoch, int64_t position);

// The progress of a run through its data.
struct DataPosition {
  int64_t epoch = 0;
  int64_t position = 0;  // samples of `epoch` that all ranks together have seen

  bool operator==(const DataPosition&) const = default;
};

// Returns the progress after the batch of `share`: the next batch begins there.
DataPosition PositionAfter(const Sharing& sharing, const BatchShare& share);

}  // namespace carole::io
