// A lock that makes sure that only one run writes a folder, such as a train_dir or a data set.
#pragma once

#include <cstdint>
#include <string>

#include "src/core/files/disk.h"

namespace carole {

// Holds the lock of a folder from construction to destruction. The lock is an flock on
// `<folder>/.lock`. The operating system releases it when the process ends, even if it was killed.
// The file contains the process, the host and the time of the holder. If the file system does not
// support locks, a warning is logged and the folder is not protected. Only the rank that writes the
// folder takes the lock.
class RunLock {
 public:
  // The reaction if another run holds the lock: throw ConfigError, which names that run, or wait
  // until it releases the lock.
  enum class OnConflict : uint8_t { kThrow, kWait };
  // Takes the lock. Throws DiskError if the folder is missing or not writable.
  explicit RunLock(const std::string& folder, OnConflict on_conflict = OnConflict::kThrow);

  // Throws ConfigError if the folder or its .lock was moved, removed or replaced since. Then
  // another run may have locked the folder that has this path now.
  void RequireHeld() const;

 private:
  const std::string folder_, holder_;
  FileDescriptor file_;
};

}  // namespace carole
