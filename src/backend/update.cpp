#include "src/backend/update.h"

#include <algorithm>

namespace carole {

std::vector<UpdateBlock> CutIntoBlocks(const UpdateJob& job) {
  std::vector<UpdateBlock> blocks;
  size_t regularized = 0, copied = 0;  // indices of the first segments that end after `at`
  for (int64_t at = 0; at < job.count; at = blocks.back().range.end) {
    UpdateBlock block{.range = {at, std::min(at + UpdateBlock::kElements, job.count)}};
    // Says whether the segment contains `at`. Ends the block at the segment's next border.
    const auto is_in = [&](const Segment& segment) {
      const bool has_begun = segment.begin <= at;
      block.range.end = std::min(block.range.end, has_begun ? segment.end : segment.begin);
      return has_begun;
    };
    while (regularized < job.regularized.size() && job.regularized[regularized].end <= at)
      ++regularized;
    if (regularized < job.regularized.size() && is_in(job.regularized[regularized]))
      block.segment = static_cast<int>(regularized);
    while (copied < job.copies.size() && job.copies[copied].range.end <= at) ++copied;
    if (copied < job.copies.size() && is_in(job.copies[copied].range)) {
      const WeightCopy& copy = job.copies[copied];
      block.copy = copy.memory + static_cast<size_t>(at - copy.range.begin) * SizeOf(copy.dtype);
    }
    blocks.push_back(block);
  }
  return blocks;
}

}  // namespace carole
