// Memory of a GPU, and the numbers of a run in it.
#pragma once

#include "src/backend/cuda/runtime/cuda.h"

namespace carole::cuda {

// Zeroed. Throws DeviceMemoryError that says what is free.
DeviceMemory AllocateDevice(size_t bytes, CUstream_st* stream);
DeviceMemory AllocateManaged(size_t bytes);  // the host may touch it too

DeviceMemory AllocatePinned(size_t bytes);  // the host's, zeroed

// A copy of what the host has.
DeviceMemory CopyToDevice(const void* data, size_t bytes, CUstream_st* stream);
template <typename T>
DeviceMemory CopyToDevice(const std::vector<T>& values, CUstream_st* stream) {
  return CopyToDevice(values.data(), values.size() * sizeof(T), stream);
}

// Writes device.numbers, in the order of the kernels.
void SetNumbers(const Device& device, const RunNumbers& numbers);

}  // namespace carole::cuda
