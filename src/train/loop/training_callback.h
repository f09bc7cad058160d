// What looks on while a run trains: traces, summaries, reports.
#pragma once

#include <cstdint>

#include "io/pipeline/dataset.h"
#include "src/train/evaluation/metrics.h"
#include "src/train/state/state.h"
#include "src/train/step/train_step.h"

namespace carole::train {

// An update that was applied.
struct AppliedStep {
  RunState state;  // after it
  const StepResult& result;
  const io::BatchSource& source;
  double learning_rate = 0;
  double seconds = 0;  // from asking for the batch to the end of the update
};

// The trainer calls every rank's watchers, in their order, in the same places on all ranks: so they
// may communicate. What they throw ends the run.
class TrainingCallback {
 public:
  virtual ~TrainingCallback() = default;

  // Weights and place are there; no step was made yet.
  virtual void Started(const RunState& /*state*/) {}
  // Before the batch is asked for. `step`: updates done so far.
  virtual void StepBegins(int64_t /*step*/) {}
  // Not called for a step that was not applied.
  virtual void StepEnded(const AppliedStep& /*step*/) {}
  // Training stands still between these two; the second does not come when a stop cut it short.
  virtual void EvaluationBegins(int64_t /*step*/) {}
  virtual void Evaluated(int64_t /*step*/, const Metrics& /*metrics*/, double /*seconds*/) {}
  // Of training's time: the file is written beside it.
  virtual void Saved(int64_t /*step*/, double /*seconds*/) {}
  // The last call. `finished`: max_number_of_steps are done, and evaluated where that is due.
  virtual void Ended(const RunState& /*state*/, bool /*finished*/) {}
};

}  // namespace carole::train
