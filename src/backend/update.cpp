#include "src/backend/update.h"

#include <algorithm>

namespace carole {

std::vector<UpdateBlock> CutIntoBlocks(const UpdateJob& job) {
  std::vector<UpdateBlock> blocks;
  int64_t at = 0;
  const auto cut = [&](int64_t end, int segment) {
    for (; at < end; at = blocks.back().range.end)
      blocks.push_back({{at, std::min(at + UpdateBlock::kElements, end)}, segment});
  };
  for (size_t s = 0; s < job.regularized.size(); ++s) {
    cut(job.regularized[s].begin, -1);
    cut(job.regularized[s].end, static_cast<int>(s));
  }
  cut(job.count, -1);
  return blocks;
}

}  // namespace carole
