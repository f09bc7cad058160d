// What the ranks together have seen of an epoch, checked and logged when it ends.
#pragma once

#include <string>

#include "collectives/communicator.h"
#include "io/pipeline/dataset.h"

namespace carole::train {

// Sums the counts of the epoch's last batch over all ranks; rank 0 logs records seen, skipped (why)
// and duplicated, with those `before` the source was made. Collective, but for sources that do not
// count. Throws InternalError when the ranks together did not see each record once; on all ranks.
void ReportEpoch(const io::Batch& last, const io::BatchSource& source,
                 const io::EpochCounts& before, collectives::Communicator& communicator);

// Throws DataError when all ranks together have skipped more than --max_bad_records.
void RequireFewSkipped(int64_t skipped, int64_t max_bad_records);

// The line of the log, without the epoch: "59998 records seen, 2 skipped (1 damaged
// records, 1 bad images), 0 duplicated".
std::string DescribeCounts(const io::EpochCounts& counts);

}  // namespace carole::train
