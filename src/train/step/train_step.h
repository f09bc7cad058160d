// One training step of one rank: forward, backward with the all-reduce beside it, and the optimizer
// when all sums have arrived and are finite. So every rank applies the whole step, or none does.
//
// The loss that is minimized is the mean over all ranks' samples plus the regularization term, so N
// ranks at local batch B do what one rank does at batch N*B (batch norm apart, which sees the
// samples of its own rank and micro-batch unless it is told otherwise).
//
// A device never waits for the host: it decides by itself whether a step is finite, and is given
// the next step before the host has read the losses of the last one.
//
//   step.Begin(batch 0); step.Begin(batch 1); step.End() -> step 0; step.Begin(batch 2); …
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

// What changes from step to step beside the batch.
struct StepInput {
  int64_t step = 0;  // updates done before this one, steps under way included
  uint64_t seed = 0;
  double learning_rate = 0;
  bool ask_stop = false;  // this rank wants to stop after the step
  bool ask_save = false;  // this rank wants a checkpoint after the step
  double input_ms = 0;    // waited for the batch
};

struct StepResult {
  io::Batch batch;                 // lasts as its BatchSource says
  std::span<const double> losses;  // over all ranks, in the order of graph().losses(); valid until
                                   // the next Begin()
  double data_loss = 0;            // their sum
  double accuracy = 0;             // share of this step's samples, over all ranks, that were right
  double regularization_loss = 0;  // of the weights before the update, frozen ones included
  double total_loss = 0;
  double gradient_norm = 0;  // of the data loss, over all variables, before clipping
  double loss_scale = 1;     // by which what lies in the gradients' arena is larger
  bool overflowed = false;   // so not applied, as the loss scale was too large: it is halved now
  bool applied = true;       // false: weights, slots and statistics were left as they were,
  std::string blame;         // because of this (StepGuard::Blame)
  bool stop = false;         // some rank asked for it; the same on every rank
  bool save = false;
  double input_ms = 0;  // getting the batch and copying it in
  double forward_ms = 0;
  double backward_ms = 0;
  double optimizer_ms = 0;
  double exposed_communication_ms = 0;  // waited for sums after backward was done
};

// Owns the replica of one rank. One thread uses it.
class TrainStep {
 public:
  // `graph`: forward part and losses, with inputs "images" (N,C,H,W), "labels" (N), "weights" (N);
  // it is fused and differentiated here. Backend and communicator outlive this. Collective: all
  // ranks construct it together. Throws UsageError for bad flags, CommError when ranks disagree on
  // the plan, ConfigError when their kernels want different layouts.
  TrainStep(std::unique_ptr<Graph> graph, const Backend& backend,
            collectives::Communicator& communicator, const StepOptions& options);
  TrainStep(const TrainStep&) = delete;
  TrainStep& operator=(const TrainStep&) = delete;

  // Begins a step. Collective. Throws DataError for a label out of range.
  void Begin(const io::Batch& batch, const StepInput& input);
  // Of the oldest step under way. Where it is not applied, one that was begun after it has changed
  // nothing, and is now begun again in its place: with its step and learning rate. Collective.
  // Throws CommError also when an audit finds that replicas differ.
  StepResult End();
  // Begin() and End(), where nothing is under way.
  StepResult Run(const io::Batch& batch, const StepInput& input);

  int64_t num_in_flight() const { return begun_ - ended_; }
  // Whether one more may be begun beside the one under way. What reads or changes weights must wait
  // until none is.
  bool CanRunAhead() const;

  // Makes replicas equal again after steps of local SGD, before they are saved or evaluated:
  // weights, slots and statistics become their mean over ranks. Collective.
  void Consolidate(int64_t step);
  // Whether replicas are equal after so many updates without it.
  bool ReplicasMeet(int64_t updates) const {
    return options_.local_sgd_steps == 0 || updates % options_.local_sgd_steps == 0;
  }

  const Graph& graph() const { return *own_.graph; }
  const Executable& executable() const { return *own_.executable; }
  Executable& executable() { return *own_.executable; }
  // Through this and replica() weights may be changed until the next Begin().
  VariableStore& store() { return replica().store; }
  optim::Optimizer& optimizer() { return *own_.optimizer; }
  // All that a checkpoint holds.
  ReplicaView replica() {
    weights_may_differ_ = true;
    return {*own_.store, *own_.optimizer, own_.averages.get(), &own_.loss_scale};
  }
  const LossScale& loss_scale() const { return own_.loss_scale; }
  // Steps whose kernels were recorded.
  int64_t replays() const { return last_replay_.replays(); }
  // Null where nothing is tuned.
  const collectives::BucketTuner* bucket_tuner() const { return reduction_->tuner(); }

 private:
  using OnReady = Executable::GradientReady;
  using RunPiece = std::function<void(const io::Batch& piece, bool is_last)>;

  struct InFlightStep {
    io::Batch batch;
    StepInput input;
    StepResult result;
    std::unique_ptr<StepLosses> losses;
    std::unique_ptr<Download> sums;  // UpdateSums; null on hosts
    // As they were before it; they count it as applied until more is known.
    std::vector<optim::OptimizerScalar> scalars;
    LossScale loss_scale;
    double step_ms = 0;
  };

  // Whether the device updates the weights before the host knows if all is finite.
  bool UpdatesFirst() const { return !backend_.on_host() && options_.local_sgd_steps == 0; }
  bool MayRecord() const;
  RunContext ContextOf(const io::Batch& piece, const StepInput& input) const;
  double RowWeight(const InFlightStep& step) const;
  InFlightStep& Slot(int64_t number) { return steps_in_flight_[number % steps_in_flight_.size()]; }

  void AskForObservers(int64_t step);
  void Launch(InFlightStep& step, bool continues);
  void CopyInputs(const io::Batch& piece, InFlightStep& step);
  void RunKernels(const io::Batch& piece, const StepInput& input, const OnReady& on_ready);
  int64_t CountPieces(const io::Batch& batch) const;
  void RunPieces(InFlightStep& step, const RunPiece& run);
  void Compute(InFlightStep& step, const OnReady& on_ready);
  void RunOnHost(InFlightStep& step);
  void RunOnDevice(InFlightStep& step);
  void WaitForSums(StepResult& result);
  void SendLosses(InFlightStep& step);
  void WaitForLosses(InFlightStep& step);
  bool IsFinite(const InFlightStep& step, const UpdateSums& sums) const;
  void Count(const StepInput& input);
  bool AuditIsDue(int64_t done) const;
  void Apply(InFlightStep& step, UpdateSums sums);
  void Refuse(InFlightStep& step);
  void RecomputeLocalGradients(InFlightStep& step);

  const Backend& backend_;
  collectives::Communicator& communicator_;
  const StepOptions options_;
  Replica own_;
  StepGuard guard_;
  std::vector<InFlightStep> steps_in_flight_;    // step n in place n % size
  int64_t begun_ = 0, ended_ = 0;                // steps
  std::unique_ptr<DeviceLosses> device_losses_;  // null on hosts
  std::unique_ptr<GradientReduction> reduction_;
  StepReplay piece_replay_, last_replay_;  // of micro-batches before the last one, and of that
  bool is_observed_ = false;               // the executable of some rank
  bool has_drifted_ = false;               // from the other ranks, in local SGD
  bool weights_may_differ_ = true;         // from what the optimizer made of them, and their copies
};

}  // namespace carole::train
