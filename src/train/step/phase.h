// The phase of a step that a rank is in (input, forward, ...). Other ranks see it in their stall
// reports, traces record it, and tests inject faults by it.
#pragma once

#include <cstdint>
#include <functional>

#include "collectives/diagnostics.h"

namespace carole::train {

// Announces to the other ranks that this rank enters `phase` of `step` (Diagnostics::SetPhase).
//
// Test hook: if the environment contains CAROLE_TEST_FAULT=RANK:STEP:PHASE:KIND, that rank fails
// here, the first time it enters that phase of that step. PHASE is a name of RankPhase. KIND is
// kill (SIGKILL), segv (SIGSEGV), stop (SIGSTOP), exit (exit(3)) or quit (_exit(0)).
// Throws UsageError if the variable has another form.
void EnterPhase(collectives::Diagnostics& diagnostics, collectives::RankPhase phase, int64_t step);

// Calls `observer` for each phase that this thread enters from now on. A thread has one observer at
// a time; an empty one removes it.
using PhaseObserver = std::function<void(collectives::RankPhase phase, int64_t step)>;
void SetPhaseObserver(PhaseObserver observer);

}  // namespace carole::train
