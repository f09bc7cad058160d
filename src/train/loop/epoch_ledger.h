// The ledger of an epoch: which records all ranks together have seen, skipped and repeated.
#pragma once

#include <string>

#include "collectives/communicator.h"
#include "io/pipeline/dataset.h"
#include "src/train/state/state.h"

namespace carole::train {

// Counts the records of the current epoch, over all ranks and over the runs that a resume joins.
// One object on each rank; all ranks make the same calls.
class EpochLedger {
 public:
  // `max_bad_records`: how many records all ranks together may skip in an epoch. `communicator`
  // must outlive this.
  EpochLedger(collectives::Communicator& communicator, int64_t max_bad_records)
      : communicator_(communicator), max_bad_records_(max_bad_records) {}

  // Says that batches come from `source`, which starts at the position of `start`. `source` must
  // outlive the calls of EndBatch().
  void Open(const io::BatchSource& source, const RunState& start);

  // Prepares a batch that was just read: sets its `all_skipped`. If records may be skipped, also
  // sets the numbers of valid samples of all ranks, as skipped records must not count in the mean
  // loss. This is collective then. Throws DataError if too many records were skipped.
  void BeginBatch(io::Batch& batch, int64_t step) const;

  // Moves `state` past a batch whose step was retired. After the last batch of an epoch it checks
  // that the ranks together saw each record once, and rank 0 logs how many records were seen,
  // skipped (and why) and duplicated. This is collective then, unless the source does not count.
  // Throws InternalError on all ranks if a record was missed or seen twice, and DataError if the
  // epoch has no usable record.
  void EndBatch(const io::Batch& batch, RunState& state) const;

 private:
  io::EpochCounts CountsBefore(int64_t epoch) const;
  void CountValidSamples(io::Batch& batch, int64_t step) const;
  void EndEpoch(const io::Batch& last) const;

  collectives::Communicator& communicator_;
  const int64_t max_bad_records_;
  const io::BatchSource* source_ = nullptr;
  RunState start_;  // the position at which source_ started
};

// Throws DataError if `skipped`, the number of records that all ranks together have skipped in this
// epoch, is larger than `max_bad_records`.
void RequireFewSkipped(int64_t skipped, int64_t max_bad_records);

// Returns the text of the log line without the epoch: "59998 records seen, 2 skipped (1 damaged
// records, 1 bad images), 0 duplicated".
std::string DescribeCounts(const io::EpochCounts& counts);

}  // namespace carole::train
