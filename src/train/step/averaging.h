// Averages over ranks the parts of replicas that may differ: all of them in local SGD, and
// otherwise the running statistics of batch norm and the ranges of fake quantization.
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

// Returns the ranges of the statistics arena that a step changes: running statistics of batch norm,
// and ranges of fake quantization. Adjacent ranges are merged. `frozen` lists variables (indexes
// into the store) that are in the same arena but never change.
std::vector<collectives::Range> RunningStatisticsRanges(const VariableStore& store,
                                                        const std::vector<int>& frozen);
// Returns those that each rank computes from its own images. With SyncBN, these are only the ranges
// of fake quantization.
std::vector<collectives::Range> RankLocalStatisticsRanges(const VariableStore& store,
                                                          const std::vector<int>& frozen,
                                                          bool sync_batch_norm);

// Replaces these ranges of the running statistics, and the moving averages of these variables, by
// their mean over ranks. Collective.
void AverageRunningStatistics(collectives::Communicator& communicator, const ReplicaView& replica,
                              const std::vector<collectives::Range>& ranges, int64_t step);

}  // namespace carole::train
