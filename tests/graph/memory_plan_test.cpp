#include "src/graph/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "src/core/rng.h"
#include "src/tensor/buffer.h"

namespace carole {
namespace {

bool Overlap(const MemoryBlock& a, const MemoryBlock& b) {
  const bool in_time = a.first_step <= b.last_step && b.first_step <= a.last_step;
  const bool in_space = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
  return in_time && in_space;
}

// Checks alignment, the size of the arena, and that no two blocks overlap in time and space.
void ExpectSound(const std::vector<MemoryBlock>& blocks, size_t arena) {
  for (size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_EQ(blocks[i].offset % Buffer::kAlignment, 0u);
    EXPECT_LE(blocks[i].offset + blocks[i].bytes, arena);
    for (size_t j = 0; j < i; ++j) {
      EXPECT_FALSE(Overlap(blocks[i], blocks[j])) << "blocks " << j << " and " << i;
    }
  }
}

TEST(MemoryPlan, NoBlocksNeedNoMemory) {
  std::vector<MemoryBlock> none;
  EXPECT_EQ(PlanMemory(none), 0u);
  EXPECT_EQ(PeakBytes(none), 0u);
}

// The values of a chain alternate between two offsets. A block that lives all the time gets a third
// one.
TEST(MemoryPlan, BlocksOfAChainAlternate) {
  std::vector<MemoryBlock> blocks = {{.bytes = 1000, .first_step = 0, .last_step = 1},
                                     {.bytes = 1000, .first_step = 1, .last_step = 2},
                                     {.bytes = 1000, .first_step = 2, .last_step = 3},
                                     {.bytes = 100, .first_step = 0, .last_step = 3}};
  EXPECT_EQ(PlanMemory(blocks), 1024u + 1024u + 128u);
  EXPECT_EQ(PeakBytes(blocks), 1024u + 1024u + 128u);
  EXPECT_EQ(blocks[0].offset, 0u);
  EXPECT_EQ(blocks[1].offset, 1024u);
  EXPECT_EQ(blocks[2].offset, 0u);
  EXPECT_EQ(blocks[3].offset, 2048u);
}

TEST(MemoryPlan, FillsTheGapBetweenTwoBlocks) {
  std::vector<MemoryBlock> blocks = {{.bytes = 640, .first_step = 0, .last_step = 3},
                                     {.bytes = 512, .first_step = 0, .last_step = 1},
                                     {.bytes = 448, .first_step = 0, .last_step = 3},
                                     {.bytes = 256, .first_step = 2, .last_step = 3}};
  EXPECT_EQ(PlanMemory(blocks), 640u + 512u + 448u);
  EXPECT_EQ(blocks[3].offset, 640u);
}

TEST(MemoryPlan, BlocksThatShareOneStepDoNotOverlap) {
  std::vector<MemoryBlock> blocks = {{.bytes = 64, .first_step = 0, .last_step = 5},
                                     {.bytes = 64, .first_step = 5, .last_step = 9}};
  EXPECT_EQ(PlanMemory(blocks), 128u);
}

TEST(MemoryPlan, RandomBlocksDoNotOverlapAndAreNearTheBound) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Rng rng(seed, RngPurpose::kData);
    std::vector<MemoryBlock> blocks(2 + rng.NextBelow(120));
    const uint64_t steps = 1 + rng.NextBelow(60);
    for (MemoryBlock& b : blocks) {
      b.bytes =
          rng.NextBelow(8) == 0 ? 0 : 1 + rng.NextBelow(uint64_t{1} << (4 + rng.NextBelow(16)));
      b.first_step = static_cast<int>(rng.NextBelow(steps));
      b.last_step = b.first_step + static_cast<int>(rng.NextBelow(steps - b.first_step));
    }
    SCOPED_TRACE(seed);
    const size_t peak = PeakBytes(blocks), arena = PlanMemory(blocks);
    ExpectSound(blocks, arena);
    EXPECT_LE(peak, arena);
    // The paper reports a few percent above the bound; the worst of these seeds needs 25 % more.
    EXPECT_LE(static_cast<double>(arena), 1.35 * static_cast<double>(peak));
  }
}

}  // namespace
}  // namespace carole
