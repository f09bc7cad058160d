// The ledger of epochs: which records all ranks together have seen, skipped and repeated. The essay
// in epoch_ledger.cpp explains how that is counted.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "io/pipeline/dataset.h"
#include "src/train/loop/epoch_history.h"
#include "src/train/state/state.h"

namespace carole::train {

// A set of record numbers: one bit for each record of the data.
class RecordSet {
 public:
  // Removes all records and makes room for the numbers 0 to num_records - 1.
  void Reset(int64_t num_records) {
    words_.assign(static_cast<size_t>((num_records + kBits - 1) / kBits), 0);
  }
  // Adds a record. Returns false if it was in the set already, or if there is no room for it.
  bool Add(int64_t record);
  const std::vector<uint64_t>& words() const { return words_; }

 private:
  static constexpr int64_t kBits = 64;
  std::vector<uint64_t> words_;
};

// Counts the records of the current epoch, over all ranks and over the runs that a resume joins.
// One object on each rank; all ranks make the same calls.
class EpochLedger {
 public:
  // `max_bad_records`: how many records all ranks together may skip in an epoch. `communicator`
  // must outlive this.
  EpochLedger(collectives::Communicator& communicator, int64_t max_bad_records)
      : communicator_(communicator), max_bad_records_(max_bad_records) {}

  // Continues the ledger that a checkpoint holds in its attribute kLedger. For rank 0; the others
  // get it by Share(). Warns and starts a new ledger if the attribute is damaged.
  void Load(const std::map<std::string, std::string>& attributes);
  // Gives every rank the ledger of rank 0. `state` is where the run continues. If that is another
  // epoch, the interrupted one is kept as incomplete. Collective.
  void Share(const RunState& state);

  // Says that batches come from `source`, which starts at the position of `start`. `source` must
  // outlive the calls of EndBatch(). Rank 0 warns if the records that the checkpoint's ledger has
  // counted in this epoch are not those that precede `start`.
  void Open(const io::BatchSource& source, const RunState& start);

  // Prepares a batch that was just read: sets its `all_skipped`. If records may be skipped, also
  // sets the numbers of valid samples of all ranks, as skipped records must not count in the mean
  // loss. This is collective then. Throws DataError if too many records were skipped.
  void BeginBatch(io::Batch& batch, int64_t step) const;

  // Moves `state` past a batch whose step was retired. Returns true after the last batch of an
  // epoch. Then it checks that the ranks together saw each record once, and rank 0 logs how many
  // records were seen, skipped (and why) and duplicated. This is collective then, unless the source
  // does not count.
  // Throws InternalError on all ranks if `source` missed a record or delivered it twice, and
  // DataError if the epoch has no usable record. A difference that comes from an earlier run is a
  // warning.
  bool EndBatch(const io::Batch& batch, RunState& state);

  // Sums the current epoch's counts over all ranks, for the next checkpoint. Collective, unless
  // the source does not count.
  void Collect(int64_t step);

  // Returns the ledger for a run that is lost right after the step of `batch`, the last one of its
  // epoch. Visits that no rank has reported by Collect() are counted as planned. Does not
  // communicate.
  EpochHistory AfterPlanned(const io::Batch& batch) const;

  // The ledger as of the last call of Collect(), or of the end of the last epoch if that is later.
  // The same on all ranks.
  const EpochHistory& history() const { return history_; }

 private:
  struct RankCounts {
    io::EpochCounts counts;
    int64_t duplicated = 0;
  };

  bool is_chief() const { return communicator_.rank() == 0; }
  bool counts_records() const { return all_records_.seen > 0; }
  io::EpochCounts CountsBefore(int64_t epoch) const;
  void CountValidSamples(io::Batch& batch, int64_t step) const;
  void ContinueFrom(EpochRecords saved, const io::EpochCounts& plan);
  EpochRecords Sum(int64_t step) const;
  void EndEpoch(int64_t epoch);
  [[noreturn]] void ThrowWrongRecords(int64_t epoch, const io::EpochCounts& got) const;

  collectives::Communicator& communicator_;
  const int64_t max_bad_records_;
  EpochHistory history_;

  const io::BatchSource* source_ = nullptr;
  RunState start_;               // the position at which source_ started
  io::EpochCounts all_records_;  // what a whole epoch has; 0 records if the source does not count
  EpochRecords before_;          // the current epoch's records before source_ started
  int64_t epoch_ = 0;            // of the batches that were counted last
  RankCounts mine_;              // of this rank, of epoch_, since source_ started
  RecordSet visited_;            // the same records
};

// Throws DataError if `skipped`, the number of records that all ranks together have skipped in this
// epoch, is larger than `max_bad_records`.
void RequireFewSkipped(int64_t skipped, int64_t max_bad_records);

}  // namespace carole::train
