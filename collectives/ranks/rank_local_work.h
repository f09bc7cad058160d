// Work that each rank does for itself for as long as it takes: reading and writing files, where one
// rank may need minutes and the others nothing.
#pragma once

#include <chrono>
#include <functional>
#include <string_view>

#include "collectives/communicator.h"

namespace carole::collectives {

// Calls `work` and returns when it is done on every rank. Meanwhile a thread votes with the other
// ranks, so that no deadline runs out while they wait, and a rank that is gone or frozen is found
// as in any collective: `work` itself may call none. From `tell_after` on the log says whom all
// wait for. `what`: for errors, a literal. Collective. Throws what `work` threw on this rank, at
// once; the other ranks return when they have done theirs. Throws CommError.
void RunRankLocal(Communicator& communicator, std::string_view what,
                  const std::function<void()>& work,
                  std::chrono::milliseconds tell_after = std::chrono::seconds(10));

}  // namespace carole::collectives
