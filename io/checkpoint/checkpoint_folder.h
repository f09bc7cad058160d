// The checkpoints of one folder: lists them, finds the newest complete one, deletes old ones.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.h"

namespace carole::io {

// The suffix of a checkpoint that is still being written.
inline constexpr char kTemporarySuffix[] = ".tmp";

// "<folder>/model.ckpt-<step>.h5"
std::string CheckpointPath(const std::string& folder, int64_t step);

struct CheckpointFile {
  int64_t step = 0;
  std::string path;
};

// Lists the checkpoints by step, oldest first. A missing folder counts as empty. Throws DiskError.
std::vector<CheckpointFile> ListCheckpoints(const std::string& folder);

struct LoadedCheckpoint {
  std::string path;
  Checkpoint checkpoint;
};

// Reads the newest checkpoint whose digest is right. Skips damaged newer ones with a warning.
// Returns nullopt if the folder has no checkpoint. Throws DataError if it has some and all are
// damaged: to start silently from scratch would be worse. Throws DiskError if one cannot be read.
std::optional<LoadedCheckpoint> ReadLatest(const std::string& folder,
                                           ElementsIn place = ElementsIn::kMemory);

// Deletes the unfinished files of writers that died. Only the run that holds the folder's lock may
// call it. Throws DiskError.
void RemoveTemporaries(const std::string& folder);

// Keeps the newest `keep` checkpoints up to `step` and deletes older ones. keep = 0 keeps all.
// Checkpoints after `step` stay: they belong to a run that was restarted from an earlier step. A
// file that cannot be deleted gives a warning.
void PruneCheckpoints(const std::string& folder, int64_t step, int keep);

}  // namespace carole::io
