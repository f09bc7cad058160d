// Only one run writes a folder: a train_dir, a data set.
#pragma once

#include <cstdint>
#include <string>

#include "src/core/files/disk.h"

namespace carole {

// Holds the lock of a folder as long as it lives: an flock on `<folder>/.lock`, which the system
// frees when the process ends, however it ends. The file tells who holds it. Where the file system
// knows no locks, a warning is all there is. To be taken by the one rank that writes.
class RunLock {
 public:
  // Where another run has the folder: throws ConfigError naming it, or waits until it has gone.
  enum class OnConflict : uint8_t { kThrow, kWait };
  // Throws DiskError when the folder is missing or not writable.
  explicit RunLock(const std::string& folder, OnConflict on_conflict = OnConflict::kThrow);

  // Throws ConfigError where the folder at this path is not the locked one any more, or its file:
  // another run can have it.
  void RequireHeld() const;

 private:
  const std::string folder_, holder_;
  FileDescriptor file_;
};

}  // namespace carole
