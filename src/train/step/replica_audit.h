// Finds the rank whose weights or slots have changed by themselves: memory that lost a bit, a sum
// that went wrong.
#pragma once

#include <cstdint>
#include <span>

#include "collectives/communicator.h"
#include "src/train/state/state.h"

namespace carole::train {

// Compares hashes of all weights, slots and moving averages over ranks, and of `frozen` variables
// (indexes into the store's places), which no sum would show to differ: one number of each rank,
// and only when these differ one for each variable. Throws CommError that names the first variable
// that differs, whether in its weights or in a slot, and the ranks in the minority; where no value
// has a majority, all that there are. Collective.
void AuditReplicas(collectives::Communicator& communicator, const ReplicaView& replica,
                   std::span<const int> frozen, int64_t step);

}  // namespace carole::train
