// Turns failed calls of the CUDA runtime into exceptions.
#pragma once

#include <cuda_runtime.h>

namespace carole::cuda {

// Throws DeviceError, with the name of the call and CUDA's text for the status, unless `status` is
// cudaSuccess.
void Check(cudaError_t status, const char* call);

}  // namespace carole::cuda
