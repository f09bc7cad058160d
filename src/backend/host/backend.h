// The host as a device: what the backends for CPUs share. Device memory is host memory, copies are
// memcpy, and all work has finished when the call that enqueues it returns.
#pragma once

#include <memory>
#include <vector>

#include "src/backend/arena_math.h"
#include "src/backend/backend.h"

namespace carole::host {

// The base of backends that compute on `threads` threads of the host. They add their kernels.
class HostBackend : public Backend {
 public:
  explicit HostBackend(int threads);

  int threads() const override { return threads_; }
  bool has_own_memory() const override { return false; }
  bool is_asynchronous() const override { return false; }

  DeviceMemory Allocate(size_t bytes) const override;
  void DiscardContents(std::byte* memory, size_t bytes) const override;
  void CopyToHost(std::byte* host, const std::byte* device, size_t bytes) const override;
  void CopyFromHost(std::byte* device, const std::byte* host, size_t bytes) const override;
  std::unique_ptr<Download> MakeDownload(size_t bytes) const override;
  // The inputs are written where the kernels read them, without a copy.
  std::unique_ptr<InputBuffers> MakeInputBuffers(
      const std::vector<std::span<std::byte>>& inputs) const override;
  const ArenaMath& arena_math() const override { return *arena_math_; }

 private:
  const int threads_;
  const std::unique_ptr<ArenaMath> arena_math_;
};

}  // namespace carole::host
