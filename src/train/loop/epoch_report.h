// Checks and logs, at the end of each epoch, which records all ranks together have seen.
#pragma once

#include <string>

#include "collectives/communicator.h"
#include "io/pipeline/dataset.h"

namespace carole::train {

// Sums the record counts of `last`, the epoch's last batch, over all ranks and checks that the
// ranks together saw each record once. Rank 0 logs how many records were seen, skipped (and why)
// and duplicated.
// `source` gives the counts to expect since it was made. `before` counts the records of this epoch
// that a resumed run had seen before the source was made. They appear in the log line but are not
// checked.
// Does nothing, and does not communicate, if the source does not count. Collective otherwise.
// Throws InternalError on all ranks if a record was missed or seen twice, and DataError if the
// epoch has no usable record.
void ReportEpoch(const io::Batch& last, const io::BatchSource& source,
                 const io::EpochCounts& before, collectives::Communicator& communicator);

// Throws DataError if `skipped`, the number of records that all ranks together have skipped in this
// epoch, is larger than `max_bad_records`.
void RequireFewSkipped(int64_t skipped, int64_t max_bad_records);

// Returns the text of the log line without the epoch: "59998 records seen, 2 skipped (1 damaged
// records, 1 bad images), 0 duplicated".
std::string DescribeCounts(const io::EpochCounts& counts);

}  // namespace carole::train
