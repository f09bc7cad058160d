// Lets a caller provide the memory of what is made on a host backend, such as shared memory for
// weights and slots.
#pragma once

#include <cstddef>
#include <functional>

#include "src/backend/backend.h"

namespace carole::host {

// While an object exists, HostBackend::Allocate() of this thread takes its memory from `allocate`.
// That must return zeroed memory, aligned to Buffer::kAlignment. Objects may be nested; the
// innermost one counts.
class ScopedAllocator {
 public:
  using Allocate = std::function<DeviceMemory(size_t bytes)>;

  explicit ScopedAllocator(Allocate allocate);
  ~ScopedAllocator();
  ScopedAllocator(const ScopedAllocator&) = delete;
  ScopedAllocator& operator=(const ScopedAllocator&) = delete;

 private:
  const Allocate allocate_;
  const Allocate* const outer_;
};

}  // namespace carole::host
