// The checkpoints of one folder: which are there, which is the newest that is whole, which may go.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.h"

namespace carole::io {

// Ends the name of a checkpoint that is still being written.
inline constexpr char kTemporarySuffix[] = ".tmp";

// "<folder>/model.ckpt-<step>.h5"
std::string CheckpointPath(const std::string& folder, int64_t step);

struct CheckpointFile {
  int64_t step = 0;
  std::string path;
};

// By step, oldest first. A missing folder is an empty one. Throws DiskError.
std::vector<CheckpointFile> ListCheckpoints(const std::string& folder);

struct LoadedCheckpoint {
  std::string path;
  Checkpoint checkpoint;
};

// The newest checkpoint that verifies; damaged newer ones are skipped with a warning that names
// them. nullopt when there is none at all. Throws DataError when there are some but none verifies
// (a run that silently starts from nothing would be worse), DiskError when one cannot be read.
std::optional<LoadedCheckpoint> ReadLatest(const std::string& folder);

// Removes what writers that died left unfinished. Only for the one run that may write the folder.
void RemoveTemporaries(const std::string& folder);

// Keeps the newest `keep` of the checkpoints up to `step` (0: all) and deletes older ones. Newer
// ones, left behind by a run that was taken back, stay untouched. Files that cannot be deleted give
// a warning.
void PruneCheckpoints(const std::string& folder, int64_t step, int keep);

}  // namespace carole::io
