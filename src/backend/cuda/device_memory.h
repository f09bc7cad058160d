// Memory of a GPU, and the numbers of a run in it.
#pragma once

#include "src/backend/cuda/cuda.h"

namespace carole::cuda {

// Zeroed. Throws DeviceError that says what is free.
DeviceMemory AllocateDevice(size_t bytes, CUstream_st* stream);
DeviceMemory AllocateManaged(size_t bytes);  // the host may touch it too

// Writes device.numbers, in the order of the kernels.
void SetNumbers(const Device& device, const RunNumbers& numbers);

}  // namespace carole::cuda
