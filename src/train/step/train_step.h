// One training step of one rank: forward, backward with overlapped all-reduce, and the optimizer's
// update. The update is applied if all reduced losses and gradients are finite: on every rank, or
// on none.
//
// The minimized loss is the mean over the samples of all ranks plus the regularization term. So N
// ranks with local batch B compute what one rank computes with batch N*B. Batch norm is an
// exception: it sees only the samples of its own rank and micro-batch, unless sync_batch_norm is
// set.
//
// An asynchronous device never waits for the host. It decides itself whether a step is finite, and
// it is given the next step before the host has read the losses of the last one:
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
#include <string_view>
#include <vector>

#include "collectives/full_communicator.h"
#include "io/pipeline/dataset.h"
#include "src/train/integrity/cross_check.h"
#include "src/train/integrity/rank_faults.h"
#include "src/train/integrity/replica_audit.h"
#include "src/train/reduction/gradient_reduction.h"
#include "src/train/state/quantization_state.h"
#include "src/train/step/in_flight_step.h"
#include "src/train/step/replica.h"
#include "src/train/step/step_guard.h"
#include "src/train/step/step_options.h"
#include "src/train/step/step_replay.h"
#include "src/train/step/update_decision.h"
#include "src/train/survival/surviving_state.h"
#include "src/train/timing/device_timeline.h"
#include "src/train/timing/device_times.h"

namespace carole::train {

// Owns the replica of one rank and trains it. One thread uses it.
class TrainStep {
 public:
  // `graph` holds the forward part and the losses. Its inputs are "images" (N,C,H,W), "labels" (N)
  // or soft labels (N,K), and "weights" (N). The constructor fuses and differentiates it. Backend
  // and communicator must outlive this. Collective: all ranks construct it together. Throws
  // UsageError if options contradict each other, CommError if ranks have different plans, and
  // ConfigError if the kernels of ranks use different layouts.
  TrainStep(std::unique_ptr<Graph> graph, const Backend& backend,
            collectives::FullCommunicator& communicator, const StepOptions& options);
  TrainStep(const TrainStep&) = delete;
  TrainStep& operator=(const TrainStep&) = delete;

  // Launches a step. Collective. The memory of the batch must stay valid until End() of this step.
  // Throws DataError if a label is out of range, and ReplicaError if a cross-check finds gradients
  // that are wrong again and again.
  void Begin(const io::Batch& batch, const StepInput& input);
  // Waits for the oldest step in flight and returns its result. If that step is not applied, a step
  // that was launched after it has changed nothing either. End() then launches that step again,
  // with the step number and learning rate of the one that was not applied. Collective. Throws
  // ReplicaError if an audit finds that replicas differ and cannot be repaired.
  StepResult End();
  // Begin() and End(). No other step may be in flight.
  StepResult Run(const io::Batch& batch, const StepInput& input);

  int64_t num_in_flight() const { return begun_ - ended_; }
  // Returns true if a second step may be launched while one is in flight. Code that reads or
  // changes weights must wait until no step is in flight.
  bool CanRunAhead() const;

  // From now on, results have device_spans: the whole step, waiting for reductions after backward,
  // and each reduction. Needs an asynchronous backend. Call it before the first step. The
  // communicator must not reduce memory of the device after this object is destroyed.
  void RecordDeviceSpans();

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
    return replica_.view();
  }
  // Describes the state of this rank for its guardian, and keeps it up to date from now on. Call it
  // once, when the replica has its first weights. Does nothing if StepOptions::survivors is null.
  void ShareState(const RunFacts& facts, const RunState& progress);
  // Keeps a text for checkpoints by the guardian (SurvivingState::KeepText).
  void KeepText(std::string_view text, int64_t epoch);
  // Announces the progress after the step that Begin() launches next, if that step is applied.
  void AnnounceProgress(const RunState& progress);
  // Exchanges weights and moving averages, if there are any, and runs `then`, which may change the
  // running statistics.
  void SwapAverages(bool is_swapped, const std::function<void()>& then = {});
  const LossScale& loss_scale() const { return replica_.loss_scale; }
  // Number of steps that were replays of a captured graph.
  int64_t replays() const { return last_micro_batch_replay_.replays(); }
  std::optional<MemoryUse> device_memory_use() const { return backend_.memory_use(); }
  // Null if buckets are not tuned.
  const collectives::BucketTuner* bucket_tuner() const { return reduction_->tuner(); }
  // Measures how fast devices reduce (src/train/timing/reduction_speed.h), and chooses the size of
  // buckets accordingly. Does nothing unless StepOptions::tune_buckets is set, nor if the host
  // reduces. Call it before the first step, when the type in which gradients travel is known.
  // Collective.
  void ChooseBucketSize();

 private:
  using OnReady = Executable::GradientReady;
  using MicroBatchFunction = std::function<void(const io::Batch& micro_batch, bool is_last)>;

  bool CanCapture() const;
  RunContext ContextOf(const io::Batch& micro_batch, const StepInput& input) const;
  double RowWeight(const InFlightStep& step) const;
  double L2Weight(const InFlightStep& step) const;
  InFlightStep& Slot(int64_t number) { return steps_in_flight_[number % steps_in_flight_.size()]; }

  void DetectObservers(int64_t step);
  void Launch(InFlightStep& step, bool continues);
  void CopyInputs(const io::Batch& micro_batch, InFlightStep& step);
  void ComputeLastMicroBatch(const io::Batch& micro_batch, const StepInput& input);
  void CrossCheckGradients(const io::Batch& micro_batch, InFlightStep& step);
  void RunKernels(const io::Batch& micro_batch, const StepInput& input, const OnReady& on_ready);
  int64_t NumMicroBatches(const io::Batch& batch) const;
  void RunMicroBatches(InFlightStep& step, const MicroBatchFunction& run);
  void Replay(StepReplay& replay, const std::function<void()>& enqueue, int64_t step);
  void EnqueueStep(InFlightStep& step);
  void EnqueueLastMicroBatch(const io::Batch& micro_batch, InFlightStep& step);
  // Whether the host waits for reductions, so that it can measure how long.
  bool WaitsForReductions() const {
    return communicator_.size() == 1 || !decision_->is_on_device() || options_.NeedsHostReduction();
  }
  void EndDeviceLap(DeviceTimes::Part part) const {
    if (device_times_ != nullptr) device_times_->EndLap(part);
  }
  void BeginDeviceSpan(std::string_view what) const {
    if (timeline_ != nullptr) timeline_->Begin(what);
  }
  void EndDeviceSpan(std::string_view what) const {
    if (timeline_ != nullptr) timeline_->End(what);
  }
  void WaitForGradients(StepResult& result);
  void TakeDeviceTimes(InFlightStep& step);
  void CountUpdate(const StepInput& input);
  bool AuditIsDue(int64_t done) const;
  void Apply(InFlightStep& step, const UpdateSums& sums);
  void Audit(const InFlightStep& step);
  void Discard(InFlightStep& step);
  void KeepState(const InFlightStep& step);
  void RecomputeLocalGradients(InFlightStep& step);

  const Backend& backend_;
  collectives::FullCommunicator& communicator_;
  const StepOptions options_;
  Replica replica_;
  StepGuard guard_;
  const std::unique_ptr<UpdateDecision> decision_;
  const std::unique_ptr<DeviceTimes> device_times_;  // null if the host waits for reductions
  std::unique_ptr<DeviceTimeline> timeline_;         // null if nothing is recorded
  std::vector<InFlightStep> steps_in_flight_;        // step n is in element n % size
  int64_t begun_ = 0, ended_ = 0;                    // numbers of steps
  std::unique_ptr<GradientReduction> reduction_;
  RankFaults faults_;
  ReplicaAudit audit_;
  QuantizationInputs quantization_inputs_;
  std::unique_ptr<CrossCheck> cross_check_;  // null if it is off
  StepReplay micro_batch_replay_;            // of all micro-batches of a step but the last
  StepReplay last_micro_batch_replay_;       // of the last micro-batch and the update
  bool is_observed_ = false;                 // the executable of some rank has observers
  bool replicas_differ_ = false;             // in local SGD, since the last averaging
  // Someone other than the optimizer may have changed weights, so their 16-bit copies are old.
  bool weight_copies_may_be_stale_ = true;
};

}  // namespace carole::train
