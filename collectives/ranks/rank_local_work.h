// Runs rank-local work of unknown duration (such as file I/O) without tripping the collective
// deadline. One rank may need minutes for it while the others have nothing to do.
#pragma once

#include <chrono>
#include <functional>
#include <string_view>

#include "collectives/communicator.h"

namespace carole::collectives {

// Calls `work` and returns when it is done on every rank. Collective.
//
// Meanwhile a thread exchanges the ranks' states again and again. So no deadline runs out while
// ranks wait, and a rank that is gone or frozen is detected as in any collective. `work` itself
// must not call collectives. `what` names the work in errors and must be a literal. After
// `report_after`, the log says which ranks the others wait for.
//
// If `work` throws on this rank, throws its exception as soon as the other ranks have noticed; the
// others return when their own work is done. Throws CommError if a rank is gone.
void RunRankLocal(Communicator& communicator, std::string_view what,
                  const std::function<void()>& work,
                  std::chrono::milliseconds report_after = std::chrono::seconds(10));

}  // namespace carole::collectives
