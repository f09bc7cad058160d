#include "src/graph/memory_plan.h"

#include <algorithm>
#include <numeric>

#include "src/tensor/buffer.h"

namespace carole {

size_t PlanMemory(std::vector<MemoryBlock>& blocks) {
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return blocks[a].bytes > blocks[b].bytes; });

  std::vector<const MemoryBlock*> placed;  // by offset
  size_t arena = 0;
  for (size_t index : order) {
    MemoryBlock& block = blocks[index];
    const size_t bytes = AlignUp(block.bytes);
    size_t offset = 0;
    for (const MemoryBlock* other : placed) {
      const bool apart = other->last_step < block.first_step || block.last_step < other->first_step;
      if (apart) continue;
      if (offset + bytes <= other->offset) break;
      offset = std::max(offset, other->offset + AlignUp(other->bytes));
    }
    block.offset = offset;
    arena = std::max(arena, offset + bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), offset,
                                   [](size_t o, const MemoryBlock* b) { return o < b->offset; }),
                  &block);
  }
  return arena;
}

size_t PeakBytes(const std::vector<MemoryBlock>& blocks) {
  int steps = 0;
  for (const MemoryBlock& b : blocks) steps = std::max(steps, b.last_step + 1);
  std::vector<int64_t> change(static_cast<size_t>(steps) + 1, 0);
  for (const MemoryBlock& b : blocks) {
    change[b.first_step] += static_cast<int64_t>(AlignUp(b.bytes));
    change[b.last_step + 1] -= static_cast<int64_t>(AlignUp(b.bytes));
  }
  int64_t now = 0, peak = 0;
  for (int64_t c : change) peak = std::max(peak, now += c);
  return static_cast<size_t>(peak);
}

}  // namespace carole
