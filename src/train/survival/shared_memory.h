// Memory that outlives the process that fills it: a rank and its guardian share it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "src/core/files/file_descriptor.h"

namespace carole::train {

// An anonymous file in memory (memfd), without a name in /dev/shm or any other file system. A
// process that is forked later inherits the file. The system frees the memory when the last process
// has closed it. One thread uses an object.
class SharedMemory {
 public:
  // Throws ConfigError if the system refuses the file.
  SharedMemory();

  int file() const { return file_.get(); }

  // Appends `bytes` to the file and maps them: zeroed, aligned to a page, to a huge page (2 MiB) if
  // there are that many bytes. The memory stays mapped until the last copy of the pointer is gone.
  // Returns null if the system refuses, for instance because of `ulimit -f`.
  std::shared_ptr<std::byte> Append(size_t bytes);

  // Returns the position in the file of an address in appended memory; nullopt for others.
  std::optional<uint64_t> PositionOf(const std::byte* address) const;

 private:
  struct Region {
    const std::byte* begin = nullptr;
    size_t bytes = 0;
    uint64_t position = 0;
  };

  FileDescriptor file_;
  std::vector<Region> regions_;
  uint64_t end_ = 0;
};

// Maps the whole file of a SharedMemory, for reading. The mapping stays until the process ends.
// Throws DiskError.
std::span<const std::byte> MapForReading(int file);

}  // namespace carole::train
