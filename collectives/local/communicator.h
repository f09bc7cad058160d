// Ranks as threads of one process. Tests use it, and so does a process that runs alone.
#pragma once

#include <memory>
#include <vector>

#include "collectives/communicator_options.h"
#include "collectives/full_communicator.h"

namespace carole::collectives {

// Returns the communicators of ranks 0 to size-1. Each may be used on a thread of its own. If one
// is destroyed early, the other ranks see it as gone. Abort() makes the operations of all ranks
// throw. With size 1 there is no thread and no copy, and every operation returns at once. Throws
// UsageError if the options do not fit (MakeEngine).
std::vector<std::unique_ptr<FullCommunicator>> MakeLocalCommunicators(
    int size, const CommunicatorOptions& options = {});

}  // namespace carole::collectives
