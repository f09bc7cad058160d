// What a rank is doing, step by step: for the stall reports of those who wait for it, and for tests
// that make it fail there.
#pragma once

#include <cstdint>
#include <functional>

#include "collectives/communicator.h"

namespace carole::train {

// Says to the other ranks that this one enters `phase` of `step` (Communicator::SetPhase).
//
// Test hook: with CAROLE_TEST_FAULT=RANK:STEP:PHASE:KIND in the environment that rank comes to its
// end here, the first time it enters that phase of that step. PHASE is a name of RankPhase; KIND is
// kill (SIGKILL), segv (SIGSEGV), stop (SIGSTOP), exit (exit(3)) or quit (_exit(0)). Anything else
// in the variable throws UsageError.
void EnterPhase(collectives::Communicator& communicator, collectives::RankPhase phase,
                int64_t step);

// Gets the phases that this thread enters from now on, as it enters them: a rank's thread has one
// at a time. Empty: none.
using PhaseObserver = std::function<void(collectives::RankPhase phase, int64_t step)>;
void SetPhaseObserver(PhaseObserver observer);

}  // namespace carole::train
