// The memory of the devices on which the ranks compute, for logs and reports.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "src/train/step/train_step.h"

namespace carole::train {

// Returns what is in use on the device of each rank; empty if ranks compute in host memory.
// Collective.
std::vector<MemoryUse> GatherDeviceMemory(collectives::Communicator& communicator,
                                          const TrainStep& step);

// Returns for example "rank 0: 41.2 of 139.8 GiB, rank 1: 41.3 of 139.8 GiB". If there are more
// than 8 ranks, the text names those with least and most. Returns "" for an empty range.
std::string DescribeDeviceMemory(std::span<const MemoryUse> ranks);

}  // namespace carole::train
