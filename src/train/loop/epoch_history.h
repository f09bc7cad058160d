// The records that a run has seen, epoch by epoch. Checkpoints store this as an attribute, and
// report.html shows it as a table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/pipeline/dataset.h"

namespace carole::train {

// The name of the attribute of checkpoints that holds EpochHistory::ToJson().
inline constexpr char kLedger[] = "epoch_ledger";

// The records of one epoch, over all ranks and over all runs that a resume has joined.
struct EpochRecords {
  int64_t epoch = 0;
  int64_t records = 0;     // of the data: an epoch must visit each of them once
  io::EpochCounts counts;  // of the visits
  int64_t planned = 0;     // visits that are counted as planned: no rank has reported them
  int64_t duplicated = 0;  // visits of a record that had been visited before
  int64_t missing = 0;     // records without a visit; 0 while the epoch goes on
  bool is_complete = false;

  int64_t visits() const { return counts.seen + counts.num_skipped(); }
};

// Returns "59998 records seen, 2 skipped (1 damaged records, 1 bad images), 0 duplicated", followed
// by the number of missing records if there are any.
std::string DescribeRecords(const EpochRecords& epoch);

struct EpochHistory {
  static constexpr size_t kMaxEpochs = 100;  // which are kept one by one

  // Sums over all epochs that have ended, also those that are no longer kept.
  struct Total {
    int64_t epochs = 0;
    int64_t seen = 0;
    int64_t skipped = 0;
    int64_t duplicated = 0;
    int64_t missing = 0;
  };

  std::vector<EpochRecords> epochs;     // the last ones that have ended, oldest first
  Total total;                          // of those, and of older ones
  std::optional<EpochRecords> current;  // the epoch in progress, if it has visits

  bool empty() const { return total.epochs == 0 && !current; }
  // Adds an epoch that has ended, and forgets the oldest one if there are too many.
  void Add(const EpochRecords& epoch);

  std::string ToJson() const;
  // Converts back. Throws DataError if the text does not come from ToJson(); files are not trusted.
  static EpochHistory FromJson(std::string_view text);
};

}  // namespace carole::train
