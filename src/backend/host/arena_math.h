// ArenaMath for arenas in host memory.
#pragma once

#include <memory>

#include "src/backend/arena_math.h"

namespace carole::host {

// Long ranges are processed by `threads` OpenMP threads. Their number changes no bit.
std::unique_ptr<ArenaMath> MakeArenaMath(int threads);

// The same on the caller's thread only, for values that no backend owns.
const ArenaMath& SerialArenaMath();

}  // namespace carole::host
