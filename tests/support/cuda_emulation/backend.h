// The CUDA backend's own kernels as a backend that runs on the CPU (see cuda_runtime.h here).
// Convolutions and products, which are the libraries', are not there.
#pragma once

#include <memory>

#include "src/backend/backend.h"

namespace carole::testing {

std::unique_ptr<Backend> MakeEmulatedCudaBackend(int threads);

}  // namespace carole::testing
