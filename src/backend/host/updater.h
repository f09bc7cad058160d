// The Updater for arenas in host memory. updater.cpp explains how it works.
#pragma once

#include <memory>

#include "src/backend/update.h"

namespace carole::host {

// Makes an updater for the job, which works on `threads` OpenMP threads. The memory of the job must
// outlive it. The weights must be kF32 or kF64, and the job must not ask for 16-bit copies; both
// throw InternalError.
std::unique_ptr<Updater> MakeUpdater(const UpdateJob& job, int threads);

}  // namespace carole::host
