// The phase of a step that a rank is in (input, forward, ...). Other ranks see it in their stall
// reports, traces record it, and drills inject faults by it.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "collectives/diagnostics.h"

namespace carole::train {

// Announces to the other ranks that this rank enters `phase` of `step` (Diagnostics::SetPhase).
// Then calls the observer and the hook of this thread.
void EnterPhase(collectives::Diagnostics& diagnostics, collectives::RankPhase phase, int64_t step);

// Calls the hook of this thread at a point within a phase. Other ranks do not see points.
void ReachPoint(collectives::Diagnostics& diagnostics, std::string_view point, int64_t step);

// Calls `observer` for each phase that this thread enters from now on. A thread has one observer at
// a time; an empty one removes it.
using PhaseObserver = std::function<void(collectives::RankPhase phase, int64_t step)>;
void SetPhaseObserver(PhaseObserver observer);

// Lets a test or a drill act when this rank enters a phase or reaches a point, for example die
// there. `point` is the name of the phase or point. The hook runs before the rank goes on. In a
// phase of an evaluation, `step` is the number of the batch.
using PointHook = std::function<void(collectives::Diagnostics& diagnostics, std::string_view point,
                                     int64_t step)>;
// Sets the hook of this thread, as ranks may be threads of one process. An empty hook removes it.
void SetPointHook(PointHook hook);

}  // namespace carole::train
