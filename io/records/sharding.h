// Which records a rank reads, as pure functions of (seed, epoch, position, rank, size).
//
// An epoch is a permutation of all records. Global batch after global batch takes the next size *
// local_batch entries of it; rank r has the r-th run of local_batch entries. So the order over all
// ranks does not depend on their number, each record is seen once an epoch, and a run can go on at
// any position on any number of ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace carole::io {

struct OrderOptions {
  bool shuffle = false;
  // 0: every permutation is equally likely. Otherwise runs of this many neighbors are shuffled,
  // and then the records within each window of kRunsOfWindow runs, so that a disk that is slow at
  // seeking reads a few long runs at a time.
  int64_t block_records = 0;
  uint64_t seed = 0;

  static constexpr int64_t kRunsOfWindow = 16;
  int64_t window_records() const { return block_records * kRunsOfWindow; }
};

// The order in which an epoch visits records: position in the epoch -> record.
class EpochOrder {
 public:
  // A permutation of num_records (less than 2^32) keyed by (seed, epoch); the identity when
  // !shuffle.
  EpochOrder(int64_t num_records, const OrderOptions& options, int64_t epoch);

  int64_t size() const { return num_records_; }
  int64_t operator[](int64_t position) const {
    return order_.empty() ? position : order_[static_cast<size_t>(position)];
  }

 private:
  int64_t num_records_;
  std::vector<uint32_t> order_;  // empty for the identity
};

// How ranks share one pass after another.
struct Sharing {
  int64_t num_records = 0;
  int64_t local_batch = 0;
  int rank = 0;
  int size = 1;

  int64_t global_batch() const { return local_batch * size; }
};

// A rank's part of the global batch that begins at `position` of `epoch`.
struct BatchShare {
  int64_t epoch = 0;
  int64_t position = 0;      // of the global batch
  int64_t global_valid = 0;  // its entries: global_batch, or fewer at the end of the epoch
  int64_t first = 0;         // place in the epoch of this rank's row 0
  int64_t valid = 0;         // rows of this rank that count: the first ones

  // The place in the epoch of a row of this rank. Rows that do not count repeat the global batch
  // from its front.
  int64_t PlaceOf(int64_t row) const { return position + (first - position + row) % global_valid; }
};

// position must be in [0, num_records).
BatchShare ShareOf(const Sharing& sharing, int64_t epoch, int64_t position);

// Where a run stands: samples of `epoch` that all ranks together have seen.
struct DataPosition {
  int64_t epoch = 0;
  int64_t position = 0;

  bool operator==(const DataPosition&) const = default;
};

DataPosition After(const Sharing& sharing, const BatchShare& share);

}  // namespace carole::io
