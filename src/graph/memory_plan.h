// Plans one arena for memory blocks that are needed during ranges of steps. Blocks that are needed
// at the same step get disjoint memory; all others may share memory.
#pragma once

#include <cstddef>
#include <vector>

namespace carole {

// A block that lives from the start of first_step to the end of last_step.
struct MemoryBlock {
  size_t bytes = 0;
  int first_step = 0;
  int last_step = 0;
  size_t offset = 0;  // set by PlanMemory, aligned to Buffer::kAlignment
};

// Sets the blocks' offsets and returns the size of the arena. Uses the "greedy by size" heuristic
// of Pisarchyk & Lee 2020, "Efficient memory management for deep neural net inference".
size_t PlanMemory(std::vector<MemoryBlock>& blocks);

// The largest number of bytes that live at one step. No arena can be smaller.
size_t PeakBytes(const std::vector<MemoryBlock>& blocks);

}  // namespace carole
