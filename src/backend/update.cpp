#include "src/backend/update.h"

#include <algorithm>

namespace carole {

std::vector<UpdateBlock> CutIntoBlocks(const UpdateJob& job) {
  std::vector<UpdateBlock> blocks;
  size_t segment = 0, copied = 0;  // indices of the first segments that end after `at`
  for (int64_t at = 0; at < job.count; at = blocks.back().range.end) {
    UpdateBlock block{.range = {at, std::min(at + UpdateBlock::kElements, job.count)}};
    // Says whether the segment contains `at`. Ends the block at the segment's next border.
    const auto is_in = [&](const Segment& range) {
      const bool has_begun = range.begin <= at;
      block.range.end = std::min(block.range.end, has_begun ? range.end : range.begin);
      return has_begun;
    };
    while (segment < job.segments.size() && job.segments[segment].end <= at) ++segment;
    if (segment < job.segments.size() && is_in(job.segments[segment])) {
      block.segment = static_cast<int>(segment);
      block.decays = job.segments[segment].decays;
    }
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
