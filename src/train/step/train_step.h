// One training step of one rank: forward, backward with overlapped all-reduce, and the optimizer's
// update. The update is applied if all reduced losses and gradients are finite: on every rank, or
// on none.
//
// The minimized loss is the mean over the samples of all ranks plus the regularization term. So N
// ranks with local batch B compute what one rank computes with batch N*B. Batch norm is an
// exception: it sees only the samples of its own rank and micro-batch, unless --sync_batch_norm is
// set.
//
// A device never waits for the host. It decides itself whether a step is finite, and it is given
// the next step before the host has read the losses of the last one:
//
//   step.Begin(batch 0);
//   step.Begin(batch 1);
//   step.End();           // the result of step 0
//   step.Begin(batch 2);
//   step.End();           // the result of step 1
//   ...
//
// train_step.cpp describes the life of a step.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "io/pipeline/dataset.h"
#include "src/train/reduction/gradient_reduction.h"
#include "src/train/step/device_losses.h"
#include "src/train/step/replica.h"
#include "src/train/step/step_guard.h"
#include "src/train/step/step_losses.h"
#include "src/train/step/step_options.h"
#include "src/train/step/step_replay.h"

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
  double data_loss = 0;            // sum of `losses`
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
};

// Owns the replica of one rank and trains it. One thread uses it.
class TrainStep {
 public:
  // `graph` holds the forward part and the losses. Its inputs are "images" (N,C,H,W), "labels" (N)
  // or soft labels (N,K), and "weights" (N). The constructor fuses and differentiates it. Backend
  // and communicator must outlive this. Collective: all ranks construct it together. Throws
  // UsageError if options contradict each other, CommError if ranks have different plans, and
  // ConfigError if the kernels of ranks use different layouts.
  TrainStep(std::unique_ptr<Graph> graph, const Backend& backend,
            collectives::Communicator& communicator, const StepOptions& options);
  TrainStep(const TrainStep&) = delete;
  TrainStep& operator=(const TrainStep&) = delete;

  // Launches a step. Collective. The memory of the batch must stay valid until End() of this step.
  // Throws DataError if a label is out of range.
  void Begin(const io::Batch& batch, const StepInput& input);
  // Waits for the oldest step in flight and returns its result. If that step is not applied, a step
  // that was launched after it has changed nothing either. End() then launches that step again,
  // with the step number and learning rate of the one that was not applied. Collective. Throws
  // CommError if an audit finds that replicas differ.
  StepResult End();
  // Begin() and End(). No other step may be in flight.
  StepResult Run(const io::Batch& batch, const StepInput& input);

  int64_t num_in_flight() const { return begun_ - ended_; }
  // Returns true if a second step may be launched while one is in flight. Code that reads or
  // changes weights must wait until no step is in flight.
  bool CanRunAhead() const;

  // Makes the replicas of local SGD equal, before they are saved or evaluated: weights, slots and
  // statistics become their mean over ranks. Collective. Does nothing if they are equal.
  void AverageReplicas(int64_t step);
  // Returns true if replicas are equal after this many updates without a call of AverageReplicas().
  bool ReplicasAreEqualAfter(int64_t updates) const {
    return options_.local_sgd_steps == 0 || updates % options_.local_sgd_steps == 0;
  }

  const Graph& graph() const { return *replica_.graph; }
  const Executable& executable() const { return *replica_.executable; }
  Executable& executable() { return *replica_.executable; }
  // The caller may change weights through store() and replica() until the next Begin().
  VariableStore& store() { return replica().store; }
  optim::Optimizer& optimizer() { return *replica_.optimizer; }
  // The parts of the replica that a checkpoint stores.
  ReplicaView replica() {
    weight_copies_may_be_stale_ = true;
    return {*replica_.store, *replica_.optimizer, replica_.moving_averages.get(),
            &replica_.loss_scale};
  }
  const LossScale& loss_scale() const { return replica_.loss_scale; }
  // Number of steps that were replays of a captured graph.
  int64_t replays() const { return last_micro_batch_replay_.replays(); }
  // Null if buckets are not tuned.
  const collectives::BucketTuner* bucket_tuner() const { return reduction_->tuner(); }

 private:
  using OnReady = Executable::GradientReady;
  using MicroBatchFunction = std::function<void(const io::Batch& micro_batch, bool is_last)>;

  struct InFlightStep {
    io::Batch batch;
    StepInput input;
    StepResult result;
    std::unique_ptr<StepLosses> losses;
    std::unique_ptr<Download> update_sums;  // UpdateSums from the device; null on the host
    // The state before the step, to restore if it is not applied. The current state counts the step
    // as applied until the device reports.
    std::vector<optim::OptimizerScalar> scalars;
    LossScale loss_scale;
    double step_ms = 0;
  };

  // Returns true if the device itself decides whether to update the weights, before the host knows
  // if the step is finite.
  bool AppliesOnDevice() const { return !backend_.on_host() && options_.local_sgd_steps == 0; }
  bool CanCapture() const;
  RunContext ContextOf(const io::Batch& micro_batch, const StepInput& input) const;
  double RowWeight(const InFlightStep& step) const;
  InFlightStep& Slot(int64_t number) { return steps_in_flight_[number % steps_in_flight_.size()]; }

  void DetectObservers(int64_t step);
  void Launch(InFlightStep& step, bool continues);
  void CopyInputs(const io::Batch& micro_batch, InFlightStep& step);
  void RunKernels(const io::Batch& micro_batch, const StepInput& input, const OnReady& on_ready);
  int64_t NumMicroBatches(const io::Batch& batch) const;
  void RunMicroBatches(InFlightStep& step, const MicroBatchFunction& run);
  void Compute(InFlightStep& step, const OnReady& on_ready);
  void RunOnHost(InFlightStep& step);
  void RunOnDevice(InFlightStep& step);
  void WaitForGradients(StepResult& result);
  void BeginLossReduction(InFlightStep& step);
  void WaitForLossReduction(InFlightStep& step);
  bool IsFinite(const InFlightStep& step, const UpdateSums& sums) const;
  void CountUpdate(const StepInput& input);
  bool AuditIsDue(int64_t done) const;
  void Apply(InFlightStep& step, UpdateSums sums);
  void Discard(InFlightStep& step);
  void RecomputeLocalGradients(InFlightStep& step);

  const Backend& backend_;
  collectives::Communicator& communicator_;
  const StepOptions options_;
  Replica replica_;
  StepGuard guard_;
  std::vector<InFlightStep> steps_in_flight_;    // step n is in element n % size
  int64_t begun_ = 0, ended_ = 0;                // numbers of steps
  std::unique_ptr<DeviceLosses> device_losses_;  // null on the host
  std::unique_ptr<GradientReduction> reduction_;
  StepReplay micro_batch_replay_;       // of all micro-batches of a step but the last
  StepReplay last_micro_batch_replay_;  // of the last micro-batch and the update
  bool is_observed_ = false;            // the executable of some rank has observers
  bool replicas_differ_ = false;        // in local SGD, since the last averaging
  // Someone other than the optimizer may have changed weights, so their 16-bit copies are old.
  bool weight_copies_may_be_stale_ = true;
};

}  // namespace carole::train
