// Optimizers and other arithmetic on arenas in a GPU's memory.
#pragma once

#include "src/backend/arena_math.h"
#include "src/backend/cuda/runtime/cuda.h"

namespace carole::cuda {

// The device outlives it.
std::unique_ptr<ArenaMath> MakeArenaMath(const Device& device);

}  // namespace carole::cuda
