// Allocates memory on a GPU and pinned memory on the host.
#pragma once

#include "src/backend/cuda/runtime/cuda.h"

namespace carole::cuda {

// Allocates `bytes` of device memory. `stream` sets them to zero, in the order of its work.
// Throws DeviceMemoryError, with the free bytes in its message, if there is too little memory.
DeviceMemory AllocateDevice(size_t bytes, CUstream_st* stream);
// Allocates memory that both the device and the host may access, and sets it to zero.
DeviceMemory AllocateManaged(size_t bytes);
// Allocates pinned host memory, set to zero.
DeviceMemory AllocatePinned(size_t bytes);

// Copies host data into new device memory. Returns after the copy has finished.
DeviceMemory CopyToDevice(const void* data, size_t bytes, CUstream_st* stream);
template <typename T>
DeviceMemory CopyToDevice(const std::vector<T>& values, CUstream_st* stream) {
  return CopyToDevice(values.data(), values.size() * sizeof(T), stream);
}

// Enqueues a kernel that writes `run_context` to device.run_context.
void WriteRunContext(const Device& device, const DeviceRunContext& run_context);

}  // namespace carole::cuda
