// Follows the checkpoints of a run that is still training.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "io/checkpoint/checkpoint_folder.h"

namespace carole::io {

// Returns false for a path that is one checkpoint, or was meant to be one: it gets no new
// checkpoints. A folder that does not exist yet can be followed.
bool CanBeFollowed(const std::string& path);

// Finds each new checkpoint of a folder, as tf.contrib.training.checkpoints_iterator does. It
// always takes the newest one, so it passes over checkpoints that are written faster than they are
// used. In a folder without checkpoints of carole, the file `checkpoint` names TensorFlow's latest
// one.
class CheckpointFollower {
 public:
  explicit CheckpointFollower(std::string folder) : folder_(std::move(folder)) {}

  // Returns the newest checkpoint of the folder, unless it is the one that was returned last. Does
  // not wait and does not read the file. The step of a TensorFlow checkpoint is not known yet and
  // stays 0. Throws DiskError if the folder cannot be read, DataError as FindTfCheckpoint() does.
  std::optional<CheckpointFile> FindNew();

  // Excludes the checkpoint that was returned last, because it cannot be read. The newest of the
  // others counts again, unless it is the one that was returned before.
  void SkipLast();

 private:
  std::string folder_;
  std::string last_;      // path of the checkpoint that was returned last
  std::string previous_;  // path of the one before that
  std::set<std::string> skipped_;
};

}  // namespace carole::io
