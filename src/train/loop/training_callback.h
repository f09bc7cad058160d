// Callbacks that are notified of training events. Traces, TensorBoard summaries and reports are
// callbacks (src/monitoring); so the trainer does not know them.
#pragma once

#include <cstdint>

#include "io/pipeline/dataset.h"
#include "src/train/evaluation/metrics.h"
#include "src/train/loop/epoch_history.h"
#include "src/train/state/state.h"
#include "src/train/step/train_step.h"

namespace carole::train {

// The work that a loss of the job would cost now: all since the last checkpoint on the disk.
struct UnsavedWork {
  int64_t steps = 0;
  double seconds = 0;
};

// A step whose update was applied.
struct AppliedStep {
  RunState state;  // after the step
  const StepResult& result;
  const io::BatchSource& source;
  double learning_rate = 0;
  double seconds = 0;   // from asking for the batch to the end of the update
  UnsavedWork unsaved;  // after the step; only on rank 0
};

// Base class of callbacks. The trainer calls all callbacks in their order, on the training thread,
// at the same points of the run on every rank. So callbacks may communicate. An exception that a
// callback throws ends the run. Every method does nothing unless it is overridden.
class TrainingCallback {
 public:
  virtual ~TrainingCallback() = default;

  // Weights and run state have been restored or initialized; no step has been made yet.
  virtual void OnTrainBegin(const RunState& /*state*/) {}
  // Called before the trainer requests the batch. `step` counts the updates done so far.
  virtual void OnStepBegin(int64_t /*step*/) {}
  // Not called for a step that was not applied.
  virtual void OnStepEnd(const AppliedStep& /*step*/) {}
  // Training pauses between these two calls. The second one is not made if a stop request
  // interrupts the evaluation.
  virtual void OnEvaluationBegin(int64_t /*step*/) {}
  virtual void OnEvaluationEnd(int64_t /*step*/, const Metrics& /*metrics*/, double /*seconds*/) {}
  // `seconds` is the time for which training paused; another thread may still write the file.
  virtual void OnSave(int64_t /*step*/, double /*seconds*/) {}
  // The ledger of epochs has changed: after a resume, at the end of an epoch, and before a save.
  virtual void OnLedger(const EpochHistory& /*ledger*/) {}
  // A rank delays the others noticeably. `summary` says which ranks have done so, and by how much;
  // it replaces that of the last call. Called on rank 0 only, rarely.
  virtual void OnStragglers(const std::string& /*summary*/) {}
  // The memory that is in use on the devices of all ranks, once steps have all that they need.
  // Called at most once.
  virtual void OnDeviceMemory(const std::string& /*summary*/) {}
  // The last call, unless the run fails. `finished` is true if max_number_of_steps are done and
  // every evaluation that is due has been made.
  virtual void OnTrainEnd(const RunState& /*state*/, bool /*finished*/) {}
};

}  // namespace carole::train
