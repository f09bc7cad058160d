#include "src/train/step/phase.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "src/core/profiler/profiler.h"

namespace carole::train {
namespace {

thread_local PhaseObserver phase_observer;
thread_local PointHook point_hook;
thread_local std::optional<profiler::Scope> phase_range;

}  // namespace

void SetPhaseObserver(PhaseObserver observer) { phase_observer = std::move(observer); }

void SetPointHook(PointHook hook) { point_hook = std::move(hook); }

void ReachPoint(collectives::Diagnostics& diagnostics, std::string_view point, int64_t step) {
  if (point_hook) point_hook(diagnostics, point, step);
}

void EnterPhase(collectives::Diagnostics& diagnostics, collectives::RankPhase phase, int64_t step) {
  diagnostics.SetPhase(phase, step);
  if (phase_observer) phase_observer(phase, step);
  if (profiler::IsActive()) {
    phase_range.reset();
    phase_range.emplace(fmt::format("{}, step {}", Name(phase), step));
  }
  ReachPoint(diagnostics, Name(phase), step);
}

}  // namespace carole::train
