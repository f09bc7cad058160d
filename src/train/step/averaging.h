// Averages over ranks the parts of replicas that may differ: all of them in local SGD, and
// otherwise the running statistics of batch norm.
#pragma once

#include <vector>

#include "collectives/communicator.h"
#include "collectives/reducer/bucketing.h"
#include "src/train/state/state.h"

namespace carole::train {

// Replaces weights, optimizer slots and moving averages of the weights by their mean over ranks, as
// local SGD does every few steps. Collective.
void AverageWeights(collectives::Communicator& communicator, const ReplicaView& replica,
                    int64_t step);

// Returns the ranges of the statistics arena that hold running statistics of batch norm; adjacent
// ranges are merged. `frozen` lists variables (indexes into the store) that are in the same arena
// but never change.
std::vector<collectives::Range> RunningStatisticsRanges(const VariableStore& store,
                                                        const std::vector<int>& frozen);

// Replaces these ranges of the running statistics, and the moving averages of these variables, by
// their mean over ranks. Collective.
void AverageRunningStatistics(collectives::Communicator& communicator, const ReplicaView& replica,
                              const std::vector<collectives::Range>& ranges, int64_t step);

}  // namespace carole::train
