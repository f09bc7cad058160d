// The inputs of a training step, its outcome, and what is kept of it while it is in flight.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/pipeline/dataset.h"
#include "src/optim/optimizer.h"
#include "src/train/state/loss_scale.h"
#include "src/train/step/step_losses.h"
#include "src/train/timing/device_timeline.h"

namespace carole::train {

// The inputs of a step, in addition to the batch.
struct StepInput {
  int64_t step = 0;  // number of updates before this step, steps in flight included
  uint64_t seed = 0;
  double learning_rate = 0;
  bool request_stop = false;  // this rank wants to stop after the step
  bool request_save = false;  // this rank wants a checkpoint after the step
  double input_ms = 0;        // time that the trainer waited for the batch
};

// The outcome of a step. Losses, norms, flags and texts are the same on every rank.
struct StepResult {
  io::Batch batch;                 // its memory is valid as long as its BatchSource says
  std::span<const double> losses;  // means over all ranks' samples, in the order of
                                   // graph().losses(); valid until the next Begin()
  double data_loss = 0;            // sum of `losses` without regularization
  double accuracy = 0;             // correct predictions divided by samples, over all ranks
  double regularization_loss = 0;  // of the weights before the update, frozen ones included
  double total_loss = 0;           // data_loss + regularization_loss
  double gradient_norm = 0;        // of the data loss, over all variables, before clipping
  double loss_scale = 1;           // the gradients in the arena are larger by this factor
  bool overflowed = false;         // not applied as the loss scale was too large; it is halved now
  bool applied = true;             // false: weights, slots and statistics were not changed
  std::string skip_reason;         // why the step was not applied (StepGuard::DescribeNonFinite)
  bool stop = false;               // some rank requested it
  bool save = false;               // some rank requested it
  // Milliseconds of this rank.
  double input_ms = 0;  // waiting for the batch and copying it to the inputs
  double forward_ms = 0;
  double backward_ms = 0;
  double optimizer_ms = 0;
  double exposed_communication_ms = 0;  // waiting for reductions after backward
  double compute_ms = 0;  // forward, backward and optimizer, without waiting for other ranks
  // Waiting for other ranks and for reductions, if a device waits; otherwise 0: WaitStats has the
  // waiting of the host.
  double device_wait_ms = 0;
  std::vector<DeviceSpan> device_spans;  // empty without TrainStep::RecordDeviceSpans()
};

// A step that was launched and has not ended. Private to this room.
struct InFlightStep {
  io::Batch batch;
  StepInput input;
  StepResult result;
  std::unique_ptr<StepLosses> losses;
  std::unique_ptr<Download> update_sums;   // UpdateSums
  std::unique_ptr<Download> device_times;  // of DeviceTimes; null if the host waits for reductions
  std::unique_ptr<Download> timeline;      // of DeviceTimeline; null if nothing is recorded
  // The state before the step, to restore if it is not applied. The current state counts the step
  // as applied until it ends.
  std::vector<optim::OptimizerScalar> scalars;
  LossScale loss_scale;
  double launch_ms = 0;
  uint64_t profiler_range = 0;  // from its launch to its end
};

}  // namespace carole::train
