// Offsets in one arena for blocks that live during ranges of steps; blocks whose lives overlap
// never overlap.
#pragma once

#include <cstddef>
#include <vector>

namespace carole {

struct MemoryBlock {
  size_t bytes = 0;
  int first_step = 0;  // lives from the start of first_step to the end of last_step
  int last_step = 0;
  size_t offset = 0;  // set by PlanMemory, aligned to Buffer::kAlignment
};

// Sets the offsets and returns the arena's size. Greedy by size (Pisarchyk & Lee 2020, "Efficient
// memory management for deep neural net inference"): large blocks first, each at the lowest place
// that is free for its whole life.
size_t PlanMemory(std::vector<MemoryBlock>& blocks);

// The most bytes that live at one step: no plan can be smaller.
size_t PeakBytes(const std::vector<MemoryBlock>& blocks);

}  // namespace carole
