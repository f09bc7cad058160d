#include "src/train/step/train_step.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "src/core/stopwatch.h"
#include "src/train/step/averaging.h"
#include "src/train/step/micro_batch.h"
#include "src/train/step/phase.h"
#include "src/train/step/replica_audit.h"

namespace carole::train {
namespace {

void ConnectDevices(const StepOptions& o, const Backend& backend, int ranks) {
  CAROLE_CHECK(o.connect_devices, "no way to sum gradients of {} on {} ranks", backend.name(),
               ranks);
  o.connect_devices();
}

// Before anything is made.
const StepOptions& Prepared(const StepOptions& options, const Backend& backend,
                            const collectives::Communicator& communicator) {
  options.Check();
  if (!backend.on_host() && communicator.size() > 1)
    ConnectDevices(options, backend, communicator.size());
  return options;
}

GradientFlowOptions FlowOptions(const StepOptions& o, const Replica& own, bool on_host,
                                int64_t ranks) {
  GradientFlowOptions options{
      .buckets = o.buckets,
      .tune_buckets = o.tune_buckets && on_host && !o.is_local(),
      .reduction = o.local_sgd_steps > 0 ? collectives::Reduction::kNone : o.reduction,
      .through_host = !on_host && ranks > 1 && o.needs_host(),
      .num_shards = o.reproducible ? o.accumulation_steps * ranks : 0,
      .statistics = {}};
  const bool are_own = !o.sync_batch_norm && o.local_sgd_steps == 0;
  if (o.reproducible || (are_own && o.average_statistics && ranks > 1))
    options.statistics = MovingStatistics(*own.store, own.frozen);
  return options;
}

}  // namespace

TrainStep::TrainStep(std::unique_ptr<Graph> graph, const Backend& backend,
                     collectives::Communicator& communicator, const StepOptions& options)
    : backend_(backend),
      communicator_(communicator),
      options_(Prepared(options, backend, communicator)),
      own_(std::move(graph), backend, communicator, options),
      guard_(*own_.store, own_.frozen),
      steps_in_flight_(backend.on_host() ? 1 : 2),
      piece_replay_(backend, communicator, options.sync_batch_norm),
      last_replay_(backend, communicator, true) {
  for (InFlightStep& step : steps_in_flight_) {
    step.losses =
        std::make_unique<StepLosses>(*own_.graph, *own_.executable, backend, communicator);
    step.sums = backend.MakeDownload(sizeof(UpdateSums));
  }
  if (!backend.on_host()) {
    device_losses_ =
        std::make_unique<DeviceLosses>(*own_.graph, *own_.executable, backend, communicator);
  }
  // Both add in the binary tree that goes on where the ranks' own ends.
  const int size = communicator.size();
  if (options.reproducible && size > 1)
    communicator.SetAllReduce(communicator.num_hosts() == 1 ? "shared_memory" : "tree");
  reduction_ = MakeGradientFlow(communicator, *own_.store,
                                FlowOptions(options, own_, backend.on_host(), size));
}

bool TrainStep::MayRecord() const {
  return options_.replay && backend_.CanRecord() && !options_.needs_host() && !is_observed_;
}

// An audit reads the weights.
bool TrainStep::CanRunAhead() const {
  if (!UpdatesFirst() || is_observed_ || num_in_flight() != 1) return false;
  const int64_t done = steps_in_flight_[ended_ % steps_in_flight_.size()].input.step + 1;
  return options_.audit_every_n_steps == 0 || done % options_.audit_every_n_steps != 0;
}

RunContext TrainStep::ContextOf(const io::Batch& piece, const StepInput& input) const {
  RunContext context{.seed = input.seed,
                     .step = input.step,
                     .first_sample = piece.first_sample,
                     .valid_rows = piece.valid};
  if (!options_.sync_batch_norm) return context;
  const bool has_any_rank = piece.most_valid != 0;  // else the rows of all stand in
  if (piece.valid == 0 && has_any_rank) context.valid_rows = RunContext::kNoRows;
  context.sum_over_ranks = [&communicator = communicator_,
                            step = input.step](std::span<double> values) {
    communicator.AllReduce(values, {.what = "batch norm", .step = step});
  };
  return context;
}

// Of the loss, so that its gradients are those of a mean over samples.
double TrainStep::RowWeight(const InFlightStep& step) const {
  const int64_t samples =
      options_.is_local() ? std::max<int64_t>(step.batch.valid, 1) : step.batch.global_valid;
  return step.loss_scale.value() / static_cast<double>(samples);
}

void TrainStep::Begin(const io::Batch& batch, const StepInput& input) {
  CAROLE_CHECK(num_in_flight() == 0 || CanRunAhead(), "{} steps are under way", num_in_flight());
  if (begun_ == 0 && UpdatesFirst()) AskForObservers(input.step);
  const bool continues = num_in_flight() > 0;
  InFlightStep& step = Slot(begun_);
  CheckBatch(batch, step.losses->num_classes());
  step.batch = batch;
  step.input = input;
  Launch(step, continues);
  ++begun_;
}

// Rank 0 alone may write histograms; all ranks have to begin and end steps in the same order.
void TrainStep::AskForObservers(int64_t step) {
  is_observed_ = CountRanks(communicator_, own_.executable->is_observed(),
                            {.what = "observers", .step = step}) > 0;
}

// Begins the step with its batch and input.
void TrainStep::Launch(InFlightStep& step, bool continues) {
  Stopwatch watch;
  const Executable& executable = *own_.executable;
  step.scalars = own_.optimizer->scalars();
  step.loss_scale = own_.loss_scale;
  step.result = {.input_ms = step.input.input_ms};
  const double forward_before = executable.PhaseMilliseconds(Phase::kForward);
  const double backward_before = executable.PhaseMilliseconds(Phase::kBackward);
  own_.optimizer->BeginStep(step.input.learning_rate, 1 / step.loss_scale.value(), continues);
  if (std::exchange(weights_may_differ_, false)) own_.executable->CastWeights({});
  UpdatesFirst() ? RunOnDevice(step) : RunOnHost(step);
  step.result.forward_ms = executable.PhaseMilliseconds(Phase::kForward) - forward_before;
  step.result.backward_ms = executable.PhaseMilliseconds(Phase::kBackward) - backward_before;
  step.step_ms = watch.Lap();
}

void TrainStep::CopyInputs(const io::Batch& piece, InFlightStep& step) {
  Stopwatch watch;
  CopyIn(piece, RowWeight(step), *own_.executable);
  step.losses->BeginPiece(piece, step.loss_scale.value());
  own_.executable->Receive(ContextOf(piece, step.input));
  step.result.input_ms += watch.Lap();
}

void TrainStep::RunKernels(const io::Batch& piece, const StepInput& input,
                           const OnReady& on_ready) {
  EnterPhase(communicator_, collectives::RankPhase::kForward, input.step);
  bool is_forward = true;
  const OnReady ready_in_backward = [&](int ready) {
    if (std::exchange(is_forward, false))
      EnterPhase(communicator_, collectives::RankPhase::kBackward, input.step);
    on_ready(ready);
  };
  own_.executable->RunKernels(ContextOf(piece, input), on_ready ? ready_in_backward : OnReady());
}

// Brings and runs each micro-batch of a step.
void TrainStep::RunPieces(InFlightStep& step, const RunPiece& run) {
  const io::Batch& batch = step.batch;
  const int64_t rows = static_cast<int64_t>(batch.labels.size()) / options_.accumulation_steps;
  const int64_t count = CountPieces(batch);
  step.losses->BeginStep();
  reduction_->BeginMicroBatches();
  for (int64_t i = 0; i < count; ++i) {
    const io::Batch piece = MicroBatch(batch, i, rows);
    const bool is_last = i + 1 == count;
    CopyInputs(piece, step);
    run(piece, is_last);
    step.losses->EndPiece();
    if (!is_last) reduction_->EndMicroBatch();
  }
}

int64_t TrainStep::CountPieces(const io::Batch& batch) const {
  const int64_t most = options_.accumulation_steps;
  return options_.reproducible ? most : CountMicroBatches(batch, most);
}

// Forward and backward of all micro-batches; on_ready is called in the last.
void TrainStep::Compute(InFlightStep& step, const OnReady& on_ready) {
  RunPieces(step, [&](const io::Batch& piece, bool is_last) {
    RunKernels(piece, step.input, is_last ? on_ready : OnReady());
  });
}

void TrainStep::RunOnHost(InFlightStep& step) {
  guard_.Save();
  reduction_->BeginSums(step.input.step);
  Compute(step, [&](int ready) {
    // Before the first bucket: in the same place on every rank, and there by the time that backward
    // is done. A device is waited for then, so it first gets all of backward.
    if (backend_.on_host() && !step.losses->is_sent()) SendLosses(step);
    reduction_->MarkReady(ready);
  });
  reduction_->EndBackward();
  if (!step.losses->is_sent()) SendLosses(step);
  EnterPhase(communicator_, collectives::RankPhase::kSums, step.input.step);
  WaitForLosses(step);
  WaitForSums(step.result);
}

// Enqueues all; waits for nothing. Recorded are the kernels of a micro-batch, and the last one with
// all that follows; how its gradients join the others' hangs on their number.
void TrainStep::RunOnDevice(InFlightStep& step) {
  const OnReady on_ready = [&](int ready) { reduction_->MarkReady(ready); };
  const UpdateSums* const sums = own_.optimizer->sums();
  const bool is_whole = CountPieces(step.batch) == options_.accumulation_steps;
  guard_.Save();
  device_losses_->BeginStep();
  RunPieces(step, [&](const io::Batch& piece, bool is_last) {
    if (!is_last) {
      piece_replay_.Run([&] { RunKernels(piece, step.input, {}); }, MayRecord(), step.input.step);
      device_losses_->Collect();
      return;
    }
    const auto enqueue = [&] {
      reduction_->BeginSums(step.input.step);
      RunKernels(piece, step.input, on_ready);
      device_losses_->Collect();
      reduction_->EndBackward();
      WaitForSums(step.result);
      device_losses_->Inspect(*own_.optimizer, step.input.step);
      own_.optimizer->Update();
      guard_.RestoreUnless(&sums->is_finite);
    };
    is_whole ? last_replay_.Run(enqueue, MayRecord(), step.input.step) : enqueue();
  });
  step.sums->Begin(reinterpret_cast<const std::byte*>(sums));
  Count(step.input);
}

void TrainStep::WaitForSums(StepResult& result) {
  Stopwatch watch;
  int64_t end = 0;
  while (const auto range = reduction_->WaitNext()) {
    result.exposed_communication_ms += watch.Lap();
    end = static_cast<int64_t>(range->offset + range->count);
    own_.optimizer->Inspect(static_cast<int64_t>(range->offset), end);
    result.optimizer_ms += watch.Lap();
  }
  reduction_->WaitForStatistics();
  result.exposed_communication_ms += watch.Lap();
  own_.optimizer->Inspect(end,
                          own_.store->trainable_count());  // variables that no loss depends on
  result.optimizer_ms += watch.Lap();
}

void TrainStep::SendLosses(InFlightStep& step) {
  (void)step.losses->Finish();
  const auto valid = static_cast<double>(step.batch.valid);
  step.losses->Send(
      {.step = step.input.step,
       .share = options_.is_local() ? valid / static_cast<double>(step.batch.global_valid) : 1,
       .global_valid = step.batch.global_valid,
       .ask_stop = step.input.ask_stop,
       .ask_save = step.input.ask_save});
}

void TrainStep::WaitForLosses(InFlightStep& step) {
  const StepLosses::Sums sums = step.losses->Wait();
  StepResult& result = step.result;
  result.losses = sums.losses;
  result.data_loss = std::accumulate(sums.losses.begin(), sums.losses.end(), 0.0);
  result.total_loss = result.data_loss;
  result.accuracy = sums.accuracy;
  result.stop = sums.stop;
  result.save = sums.save;
}

StepResult TrainStep::Run(const io::Batch& batch, const StepInput& input) {
  CAROLE_CHECK_EQ(num_in_flight(), 0, "steps under way");
  Begin(batch, input);
  return End();
}

// Applies the step on all ranks or on none.
StepResult TrainStep::End() {
  CAROLE_CHECK(num_in_flight() > 0, "no step is under way");
  InFlightStep& step = Slot(ended_);
  Stopwatch watch;
  UpdateSums sums;
  if (UpdatesFirst()) {
    EnterPhase(communicator_, collectives::RankPhase::kSums, step.input.step);
    SendLosses(step);
    WaitForLosses(step);
    std::memcpy(&sums, step.sums->Wait(), sizeof sums);
    step.result.backward_ms += watch.Lap();  // what a device does is not told apart
  } else {
    sums = own_.optimizer->Sums();
  }
  EnterPhase(communicator_, collectives::RankPhase::kOptimizer, step.input.step);
  step.result.batch = step.batch;
  step.result.gradient_norm = optim::GradientNorm(sums, 1 / step.loss_scale.value());
  step.result.loss_scale = step.loss_scale.value();
  step.result.applied = IsFinite(step, sums);
  ++ended_;
  step.result.applied ? Apply(step, sums) : Refuse(step);
  step.result.optimizer_ms += watch.Lap();
  reduction_->Tune(step.step_ms + step.result.optimizer_ms);
  return step.result;
}

// The same on every rank: sums are, and where gradients are not summed ranks ask each other.
bool TrainStep::IsFinite(const InFlightStep& step, const UpdateSums& sums) const {
  if (UpdatesFirst()) return sums.is_finite;
  const StepResult& result = step.result;
  const bool bad = !std::isfinite(result.data_loss) || !std::isfinite(result.gradient_norm);
  if (options_.local_sgd_steps == 0) return !bad;
  return CountRanks(communicator_, bad, {.what = "verdict", .step = step.input.step}) == 0;
}

// An update that is applied, as far as is known.
void TrainStep::Count(const StepInput& input) {
  own_.optimizer->EndStep();
  own_.loss_scale.NoteGood();
  if (own_.averages != nullptr)
    own_.averages->Update(input.step + 1, &own_.optimizer->sums()->is_finite);
}

// Now, or since the last step after which replicas were equal.
bool TrainStep::AuditIsDue(int64_t done) const {
  const int64_t every = options_.audit_every_n_steps;
  const int64_t before = done - std::max<int64_t>(1, options_.local_sgd_steps);
  return every > 0 && !has_drifted_ && done / every > before / every;
}

void TrainStep::Apply(InFlightStep& step, UpdateSums sums) {
  if (!UpdatesFirst()) {
    own_.optimizer->Update();
    sums = own_.optimizer->Sums();
    Count(step.input);
  }
  step.result.regularization_loss =
      optim::RegularizationLoss(sums, options_.optimizer_options.weight_decay) + own_.FrozenLoss();
  step.result.total_loss += step.result.regularization_loss;
  const int64_t done = step.input.step + 1;
  if (options_.local_sgd_steps > 0) {
    has_drifted_ = true;
    if (ReplicasMeet(done)) Consolidate(done);
  }
  if (AuditIsDue(done)) AuditReplicas(communicator_, replica(), own_.frozen, done);
}

// Leaves nothing of it, and begins the step after it again.
void TrainStep::Refuse(InFlightStep& step) {
  for (const auto& [name, value] : step.scalars) own_.optimizer->SetScalar(name, value);
  own_.loss_scale = step.loss_scale;
  step.result.overflowed = std::isfinite(step.result.data_loss) && own_.loss_scale.NoteOverflow();
  if (!step.result.overflowed) RecomputeLocalGradients(step);
  guard_.Restore();
  if (num_in_flight() == 0) return;
  InFlightStep& next = Slot(ended_);
  next.input.step = step.input.step;
  next.input.learning_rate = step.input.learning_rate;
  Launch(next, false);
}

// Computes the step once more without the others: it is the same, and leaves the gradients
// unsummed.
void TrainStep::RecomputeLocalGradients(InFlightStep& step) {
  Compute(step, [&](int ready) { reduction_->Join(ready); });
  step.result.blame = guard_.Blame(step.losses->Finish(), communicator_);
}

void TrainStep::Consolidate(int64_t step) {
  if (!std::exchange(has_drifted_, false)) return;
  AverageWeights(communicator_, replica(), step);
  if (!options_.sync_batch_norm)
    AverageStatistics(communicator_, replica(), MovingStatistics(*own_.store, own_.frozen), step);
}

}  // namespace carole::train
