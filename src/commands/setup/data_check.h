// A quick check of a data set's shards, for `carole doctor`.
#pragma once

#include "launch/doctor/doctor.h"
#include "src/commands/flags/flags.h"

namespace carole::commands {

// Checks that all shards exist, and that the first and the last record of each are intact. Reads
// evenly spread shards until `seconds` have passed, at least one.
launch::Finding CheckData(const DataConfig& flags, double seconds);

}  // namespace carole::commands
