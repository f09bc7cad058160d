// What calls of CUDA's runtime return.
#pragma once

#include <cuda_runtime.h>

namespace carole::cuda {

// Throws DeviceError that names the call and CUDA's words.
void Check(cudaError_t status, const char* call);

}  // namespace carole::cuda
