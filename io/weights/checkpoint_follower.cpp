#include "io/weights/checkpoint_follower.h"

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "io/tensorflow/tf_checkpoint.h"
#include "io/weights/open_weights.h"

namespace carole::io {

bool CanBeFollowed(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    const bool has_name_of_checkpoint =
        path.ends_with(".h5") ||
        std::filesystem::path(path).filename().string().starts_with("model.ckpt");
    return !has_name_of_checkpoint && !std::filesystem::exists(path, error) &&
           !std::filesystem::exists(ResolveWeightsPath(path), error) && !FindTfCheckpoint(path);
  }
  const bool is_saved_model = std::filesystem::exists(path + "/saved_model.pb", error);
  return !is_saved_model || !ListCheckpoints(path).empty() || FindTfCheckpoint(path);
}

std::optional<CheckpointFile> CheckpointFollower::FindNew() {
  std::vector<CheckpointFile> files = ListCheckpoints(folder_);
  if (files.empty()) {
    if (const auto latest = FindTfCheckpoint(folder_))
      files.push_back({.step = 0, .path = *latest});
  }
  std::erase_if(files, [&](const CheckpointFile& file) { return skipped_.contains(file.path); });
  if (files.empty() || files.back().path == last_) return std::nullopt;
  previous_ = std::exchange(last_, files.back().path);
  return files.back();
}

void CheckpointFollower::SkipLast() { skipped_.insert(std::exchange(last_, previous_)); }

}  // namespace carole::io
