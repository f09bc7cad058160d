// InputBuffers for devices with memory of their own. Each input has a buffer in host memory and one
// in device memory. The copy from the first to the second overlaps with the kernels of the run
// before, which still read the input itself.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "src/backend/backend.h"

namespace carole {

// Copies from the host that overlap with kernels. The kernels that read the copied bytes are
// enqueued between BeginReading() and EndReading().
class UploadQueue {
 public:
  virtual ~UploadQueue() = default;

  // Copies run in the order of their calls. They wait for no other kernels than those before the
  // last EndReading().
  virtual void Copy(std::byte* device, const std::byte* host, size_t bytes) = 0;
  // Waits until all copies so far have read the host's bytes.
  virtual void WaitOnHost() = 0;
  // Makes later kernels wait for all copies so far.
  virtual void BeginReading() = 0;
  // Makes later copies wait for all kernels so far, because these may still read the bytes that
  // will be overwritten.
  virtual void EndReading() = 0;
};

// `allocate_on_host` returns host memory from which copies are fast (pinned memory). `inputs` are
// ranges of device memory. Backend and queue must outlive the result.
std::unique_ptr<InputBuffers> MakeStagedInputs(
    const Backend& backend, UploadQueue& queue,
    const std::function<DeviceMemory(size_t bytes)>& allocate_on_host,
    const std::vector<std::span<std::byte>>& inputs);

}  // namespace carole
