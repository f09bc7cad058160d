// Only one run writes a train_dir.
#pragma once

#include <string>

#include "io/disk.h"

namespace carole::io {

// Holds the lock of a folder as long as it lives: an flock on `<folder>/.lock`, which the system
// frees when the process ends, however it ends. The file tells who holds it. Where the file system
// knows no locks, a warning is all there is. To be taken by the one rank that writes.
class RunLock {
 public:
  // Throws ConfigError naming the holder when another run has the folder, DiskError when the folder
  // is missing or not writable.
  explicit RunLock(const std::string& folder);

 private:
  FileDescriptor file_;
};

}  // namespace carole::io
