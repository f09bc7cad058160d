// Decides whether a step is applied, and reduces its losses over ranks for that.
//
// All steps have the same life (train_step.cpp). Only this differs: who decides. The host can read
// the losses of its own kernels while backward still runs, and decides at once. An asynchronous
// device decides itself, so that it never waits for the host. In local SGD the ranks vote, as they
// do not reduce their gradients.
#pragma once

#include <memory>

#include "collectives/full_communicator.h"
#include "src/train/step/in_flight_step.h"
#include "src/train/step/replica.h"
#include "src/train/step/step_options.h"

namespace carole::train {

// The calls of one step come in the order in which they are declared. All of them are collective.
// Used by one thread.
class UpdateDecision {
 public:
  virtual ~UpdateDecision() = default;

  // Returns true if nothing from BeginStep() to Decide() waits for the device. Then the next step
  // may be launched before this one ends, and the enqueued work may be captured.
  virtual bool is_on_device() const = 0;

  virtual void BeginStep() {}
  // Forward and backward of a micro-batch were enqueued.
  virtual void EndMicroBatch() {}
  // A gradient of the last micro-batch is final, and so are its losses. The reductions of gradients
  // start after the first call.
  virtual void OnGradient(InFlightStep& step) { (void)step; }
  // All of backward was enqueued.
  virtual void EndBackward(InFlightStep& step) { (void)step; }
  // The optimizer has inspected all reduced gradients. Makes it inspect the losses as well: after
  // this call, its update is applied on all ranks or on none.
  virtual void Decide(InFlightStep& step) = 0;
  // Completes the losses and requests in step.result.
  virtual void End(InFlightStep& step) { (void)step; }
};

// The arguments must outlive the result.
std::unique_ptr<UpdateDecision> MakeUpdateDecision(const StepOptions& options,
                                                   const Replica& replica, const Backend& backend,
                                                   collectives::FullCommunicator& communicator);

}  // namespace carole::train
