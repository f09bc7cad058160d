#include "io/checkpoint/checkpoint_follower.h"

#include <utility>
#include <vector>

namespace carole::io {

std::optional<CheckpointFile> CheckpointFollower::FindNew() {
  std::vector<CheckpointFile> files = ListCheckpoints(folder_);
  std::erase_if(files, [&](const CheckpointFile& file) { return skipped_.contains(file.path); });
  if (files.empty() || files.back().path == last_) return std::nullopt;
  previous_ = std::exchange(last_, files.back().path);
  return files.back();
}

void CheckpointFollower::SkipLast() { skipped_.insert(std::exchange(last_, previous_)); }

}  // namespace carole::io
