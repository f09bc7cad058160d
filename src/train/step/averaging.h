// Means over ranks of what ranks may hold differently.
#pragma once

#include <vector>

#include "collectives/communicator.h"
#include "collectives/reducer/bucketing.h"
#include "src/train/state/state.h"

namespace carole::train {

// Weights, slots and the weights' moving averages, as local SGD does every few steps.
void AverageWeights(collectives::Communicator& communicator, const ReplicaView& replica,
                    int64_t step);

// Where the moving statistics of batch norm lie in their arena, neighbors joined. `frozen` lists
// variables that lie among them but never change.
std::vector<collectives::Range> MovingStatistics(const VariableStore& store,
                                                 const std::vector<int>& frozen);

// Those `ranges` of the statistics and of their moving averages.
void AverageStatistics(collectives::Communicator& communicator, const ReplicaView& replica,
                       const std::vector<collectives::Range>& ranges, int64_t step);

}  // namespace carole::train
