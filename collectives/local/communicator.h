// Ranks as threads of one process: for tests, and for one process alone.
#pragma once

#include <memory>
#include <vector>

#include "collectives/communicator.h"

namespace carole::collectives {

// Communicators of ranks 0 to size-1. Each may move to a thread of its own; one that is destroyed
// early counts as gone for the others. Abort() only makes every rank's operations throw. With size
// 1 there is no thread, no copy, and every operation returns at once.
std::vector<std::unique_ptr<Communicator>> MakeLocalCommunicators(
    int size, const CommunicatorOptions& options = {});

}  // namespace carole::collectives
