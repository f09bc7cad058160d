// Optimizers and other arithmetic on arenas in device memory (src/backend/arena_math.h).
#pragma once

#include "src/backend/arena_math.h"
#include "src/backend/cuda/runtime/cuda.h"

namespace carole::cuda {

// `device` must outlive the result.
std::unique_ptr<ArenaMath> MakeArenaMath(const Device& device);

}  // namespace carole::cuda
