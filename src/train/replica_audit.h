// Finds the rank whose weights or slots have changed by themselves: memory that lost a bit, a sum
// that went wrong.
#pragma once

#include "collectives/communicator.h"
#include "src/graph/variable_store.h"
#include "src/optim/optimizer.h"

namespace carole::train {

// Compares hashes of all weights and slots over ranks: one number of each rank, and only when these
// differ one for each variable. Throws CommError that names the first variable that differs,
// whether in its weights or in a slot, and the ranks in the minority; where no value has a
// majority, all that there are. Collective.
void AuditReplicas(collectives::Communicator& communicator, const VariableStore& store,
                   const optim::Optimizer& optimizer, int64_t step);

}  // namespace carole::train
