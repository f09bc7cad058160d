// The last phase of the compiler: gives the blocks of a plan their lifetimes and their place in the
// arena. Private to this room.
#pragma once

#include <vector>

#include "src/graph/plan/plan.h"

namespace carole {

// Sets the blocks' lifetimes and offsets, and the plan's statistics about memory. The blocks in
// `pinned` live to the end of the run. Outputs overwrite inputs that die in the same step if the
// kernel allows it: then both have the same block, and the other block has 0 bytes.
void PlaceBlocks(Plan& plan, const std::vector<int>& pinned);

}  // namespace carole
