// Finds a rank whose replica has diverged silently: through a bit flip in memory, or a reduction
// that went wrong.
#pragma once

#include <cstdint>
#include <span>

#include "collectives/communicator.h"
#include "src/train/state/state.h"

namespace carole::train {

// Compares the hashes of all weights, slots and moving averages over ranks. It also compares the
// `frozen` variables (indexes into the store): their gradients are never reduced, so nothing else
// would show a difference. Each rank sends one number; only if these differ, one number per
// variable. Collective.
// Throws ReplicaError that names the first variable that differs (its weights or a slot) and the
// ranks in the minority. If no value has a majority, it names all ranks.
void AuditReplicas(collectives::Communicator& communicator, const ReplicaView& replica,
                   std::span<const int> frozen, int64_t step);

}  // namespace carole::train
