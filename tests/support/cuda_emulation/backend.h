// The CUDA backend's own kernels as a backend that runs on the CPU (see cuda_runtime.h here).
// Convolutions and products, which are the libraries', are not there, or another backend's.
#pragma once

#include <memory>

#include "src/backend/backend.h"

namespace carole::testing {

std::unique_ptr<Backend> MakeEmulatedCudaBackend(int threads);
std::unique_ptr<Backend> MakeEmulatedCudaBackend(std::unique_ptr<Backend> libraries);

}  // namespace carole::testing
