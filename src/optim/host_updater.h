// The Updater of memory that the host can touch.
#pragma once

#include <memory>

#include "src/backend/update.h"

namespace carole::optim {

// The work is shared out to `threads` threads (OpenMP). The job's memory outlives the updater.
std::unique_ptr<Updater> MakeHostUpdater(const UpdateJob& job, int threads);

}  // namespace carole::optim
