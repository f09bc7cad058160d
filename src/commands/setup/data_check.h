// A quick look at a data set's shards.
#pragma once

#include "launch/doctor/doctor.h"
#include "src/commands/flags/flags.h"

namespace carole::commands {

// Whether all shards are there, and the first and the last record of each is whole: as many shards
// as the time allows, evenly spread.
launch::Finding CheckData(const DatasetFlags& flags, double seconds);

}  // namespace carole::commands
