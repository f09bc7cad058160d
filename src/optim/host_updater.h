// The Updater for arenas in host memory. host_updater.cpp explains how it works.
#pragma once

#include <memory>

#include "src/backend/update.h"

namespace carole::optim {

// Makes an updater for the job, which works on `threads` OpenMP threads. The memory of the job must
// outlive it. The weights must be kF32 or kF64, and the job must not ask for 16-bit copies; both
// throw InternalError.
std::unique_ptr<Updater> MakeHostUpdater(const UpdateJob& job, int threads);

}  // namespace carole::optim
