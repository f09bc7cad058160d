// The life of a training step.
//
// Task. A step is: copy the batch, forward, backward, reduce the gradients over ranks, update the
// weights. Three demands complicate it.
//   - Communication must overlap with backward.
//   - A step whose loss or gradient is infinite or NaN on any rank must change nothing on all
//   ranks.
//   - A GPU must never wait for the host, although only the host can log losses, vote about
//     stopping, and tell the optimizer the next learning rate.
//
// Every backend is a device with an order of work (src/backend/backend.h), and every step has these
// phases. On the host, work has finished when it is enqueued.
//
//   Begin   save the running statistics, which forward changes
//           for each micro-batch: copy the inputs, enqueue forward and backward
//             in the last backward: the first final gradient starts the reductions of losses and
//             running statistics over ranks, as forward has ended; each one completes its bucket
//             (MarkReady), whose reduction starts at once
//             every K steps, ranks check each other's gradients first (CrossCheckGradients)
//           wait for each bucket; the optimizer inspects it for infinities and NaN
//           decide: the optimizer also learns whether the losses are finite (UpdateDecision)
//           update the weights if everything is finite (UpdateSums::is_finite, in device memory);
//           otherwise restore the running statistics; both without asking the host
//           download UpdateSums; count the step as applied
//   End     wait for losses and UpdateSums
//           if applied: regularization loss, local SGD averaging, audit (Apply)
//           otherwise: undo what was counted (Discard)
//
// UpdateDecision is the only part that depends on the device:
//
//                       losses are reduced       decides before the update   steps in flight
//   host                in backward              the host                    1
//   GPU                 by the GPU, and at End   the GPU                     2
//   local SGD           after backward           the ranks vote              1
//
// On the host, the all-reduce of the losses starts before the first bucket. So it has the same
// place in the order of collectives on every rank, and it is done when backward is done. All ranks
// see the same reduced losses and gradients and thus decide alike. With local SGD, which reduces no
// gradients, they vote; a GPU then waits for the host.
//
// On a GPU, Begin only enqueues. A second step may be launched before the first one ends.
// The host counts a launched update as applied: the optimizer's scalars, the loss scale and the
// number of updates advance in Begin (CountUpdate). InFlightStep keeps the values from before, and
// Discard puts them back.
//
// Example: batch 1 of three is bad, with two steps in flight.
//
//   host:    Begin(b0)  Begin(b1)  End: step 0 applied   Begin(b2)  End: step 1 not applied
//   device:  b0: weights updated   b1: not finite, no update   b2: no update either
//
// b2 was launched as step 2, before anybody knew that b1 would fail. BeginStep(continues = true)
// tells the device that a step is still in flight; the device then treats b2 as not finite, too.
// End() of b1 relaunches b2 as step 1, with the learning rate of step 1. The result is the same,
// bit for bit, as if the host had waited.
//
// Discard. It restores the running statistics, the scalars and the loss scale. If the loss was
// finite but the gradients were not, a dynamic loss scale was too large and is halved. Otherwise
// the step is computed again without reducing gradients (RecomputeLocalGradients), as reduced
// gradients do not show which rank was the cause. The weights have not changed, so the gradients
// are the same as before. Then the guard describes what is not finite on each rank.
//
// CUDA graph replay. The kernels of a micro-batch are captured as one graph. The last micro-batch
// is captured together with all that follows it. How its gradients are combined with those of the
// earlier micro-batches depends on their number, so a short step, with fewer micro-batches, runs
// eagerly. If one rank has observers of kernels (histograms, traces), no rank captures or launches
// a second step.
#include "src/train/step/train_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "src/core/profiler/profiler.h"
#include "src/core/stopwatch.h"
#include "src/train/step/averaging.h"
#include "src/train/step/gradient_hook.h"
#include "src/train/step/micro_batch.h"
#include "src/train/step/phase.h"
#include "src/train/survival/state_memory.h"
#include "src/train/timing/reduction_speed.h"

namespace carole::train {
namespace {

// DeviceSpan::what of spans that are no reductions.
constexpr std::string_view kStepSpan = "step", kWaitSpan = "wait for reductions";

void ConnectDevices(const StepOptions& o, const Backend& backend, int ranks) {
  CAROLE_CHECK(o.connect_devices, "no way to sum gradients of {} on {} ranks", backend.name(),
               ranks);
  o.connect_devices();
}

// Checks the options and connects the devices, before the members of TrainStep are made.
const StepOptions& PrepareOptions(const StepOptions& options, const Backend& backend,
                                  const collectives::Communicator& communicator) {
  options.Check();
  if (backend.has_own_memory() && communicator.size() > 1)
    ConnectDevices(options, backend, communicator.size());
  return options;
}

GradientReductionOptions MakeReductionOptions(const StepOptions& o, const Replica& replica,
                                              const Backend& backend, int64_t ranks) {
  GradientReductionOptions options{
      .buckets = o.buckets,
      .tune_buckets = o.tune_buckets && !backend.is_asynchronous() && !o.MinimizesLocalLoss(),
      .reduction = o.local_sgd_steps > 0 ? collectives::Reduction::kNone : o.reduction,
      .through_host = backend.has_own_memory() && ranks > 1 && o.NeedsHostReduction(),
      .num_shards = o.reproducible ? o.accumulation_steps * ranks : 0,
      .statistics = {}};
  // Local SGD averages the statistics with the weights.
  if (o.reproducible || (o.local_sgd_steps == 0 && o.average_statistics && ranks > 1))
    options.statistics =
        RankLocalStatisticsRanges(*replica.store, replica.frozen, o.sync_batch_norm);
  return options;
}

}  // namespace

TrainStep::TrainStep(std::unique_ptr<Graph> graph, const Backend& backend,
                     collectives::FullCommunicator& communicator, const StepOptions& options)
    : backend_(backend),
      communicator_(communicator),
      options_(PrepareOptions(options, backend, communicator)),
      replica_(std::move(graph), backend, communicator, options),
      guard_(MakeInStateMemory(options.survivors, backend,
                               [this] { return StepGuard(*replica_.store, replica_.frozen); })),
      decision_(MakeUpdateDecision(options_, replica_, backend, communicator)),
      device_times_(WaitsForReductions() ? nullptr : std::make_unique<DeviceTimes>(backend)),
      steps_in_flight_(decision_->is_on_device() ? 2 : 1),
      audit_(communicator, replica_.view(), replica_.EqualStatistics(options_), faults_),
      quantization_inputs_(*replica_.graph, *replica_.executable, *replica_.store),
      cross_check_(MakeCrossCheck(
          communicator, *replica_.store, faults_,
          {.every_n_steps = options_.cross_check_every,
           .processor = fmt::format("{}, {} threads", options_.processor, backend.threads())})),
      micro_batch_replay_(backend, communicator, communicator, options.sync_batch_norm),
      last_micro_batch_replay_(backend, communicator, communicator, true) {
  for (InFlightStep& step : steps_in_flight_) {
    step.losses = std::make_unique<StepLosses>(*replica_.graph, *replica_.executable, communicator);
    step.update_sums = backend.MakeDownload(sizeof(UpdateSums));
    if (device_times_ != nullptr) step.device_times = device_times_->MakeDownload();
  }
  // Both algorithms add in a binary tree over ranks, which continues the tree over the
  // micro-batches of a rank (src/train/reduction/reproducible.cpp).
  const int size = communicator.size();
  using collectives::AllReduceAlgorithm;
  if (options.reproducible && size > 1)
    communicator.SetAllReduce(communicator.num_hosts() == 1 ? AllReduceAlgorithm::kSharedMemory
                                                            : AllReduceAlgorithm::kTree);
  reduction_ = MakeGradientReduction(communicator, *replica_.store,
                                     MakeReductionOptions(options, replica_, backend, size));
}

bool TrainStep::CanCapture() const {
  return options_.replay && backend_.CanCapture() && !options_.NeedsHostReduction() &&
         !is_observed_;
}

// An audit reads the weights, so no later step may be launched before it.
bool TrainStep::CanRunAhead() const {
  if (!decision_->is_on_device() || is_observed_ || num_in_flight() != 1) return false;
  const int64_t done = steps_in_flight_[ended_ % steps_in_flight_.size()].input.step + 1;
  return options_.audit_every_n_steps == 0 || done % options_.audit_every_n_steps != 0;
}

RunContext TrainStep::ContextOf(const io::Batch& micro_batch, const StepInput& input) const {
  RunContext context{.seed = input.seed,
                     .step = input.step,
                     .first_sample = micro_batch.first_sample,
                     .valid_rows = micro_batch.valid};
  if (!options_.sync_batch_norm) return context;
  // A rank without valid rows adds nothing to the batch statistics. If no rank has valid rows, all
  // ranks use their rows all the same, so that the statistics are defined.
  const bool some_rank_has_rows = micro_batch.max_valid != 0;
  if (micro_batch.valid == 0 && some_rank_has_rows) context.valid_rows = RunContext::kNoRows;
  context.sum_over_ranks = [this, step = input.step](std::span<double> values) {
    EndDeviceLap(DeviceTimes::kCompute);
    communicator_.AllReduce(values, {.what = "batch norm", .step = step, .is_urgent = true});
    EndDeviceLap(DeviceTimes::kSynced);
  };
  return context;
}

// Returns the factor of each row's loss: the loss is a mean over samples, times the loss scale.
double TrainStep::RowWeight(const InFlightStep& step) const {
  const int64_t samples = options_.MinimizesLocalLoss() ? std::max<int64_t>(step.batch.valid, 1)
                                                        : step.batch.global_valid;
  return step.loss_scale.value() / static_cast<double>(samples);
}

// Returns the factor of L2 regularization in the graph. All micro-batches of all ranks together add
// it once, as it does not depend on samples.
double TrainStep::L2Weight(const InFlightStep& step) const {
  const int64_t ranks = options_.MinimizesLocalLoss() ? 1 : communicator_.size();
  return replica_.loss_weight_decay() * step.loss_scale.value() /
         static_cast<double>(NumMicroBatches(step.batch) * ranks);
}

void TrainStep::Begin(const io::Batch& batch, const StepInput& input) {
  CAROLE_CHECK(num_in_flight() == 0 || CanRunAhead(), "{} steps are in flight", num_in_flight());
  if (begun_ == 0 && decision_->is_on_device()) DetectObservers(input.step);
  const bool continues = num_in_flight() > 0;
  InFlightStep& step = Slot(begun_);
  CheckBatch(batch, step.losses->num_classes());
  step.batch = batch;
  step.input = input;
  if (profiler::IsActive())
    step.profiler_range = profiler::Begin(fmt::format("step {}", input.step));
  Launch(step, continues);
  ++begun_;
}

// Only rank 0 may have observers (it writes histograms), but all ranks must begin and end steps in
// the same order.
void TrainStep::DetectObservers(int64_t step) {
  is_observed_ = CountRanks(communicator_, replica_.executable->is_observed(),
                            {.what = "observers", .step = step}) > 0;
}

// Launches the step with its batch and input. `continues`: another step is still in flight.
void TrainStep::Launch(InFlightStep& step, bool continues) {
  Stopwatch watch;
  const Executable& executable = *replica_.executable;
  step.scalars = replica_.optimizer->scalars();
  step.loss_scale = replica_.loss_scale;
  step.result = {.input_ms = step.input.input_ms};
  const double forward_before = executable.PhaseMilliseconds(Phase::kForward);
  const double backward_before = executable.PhaseMilliseconds(Phase::kBackward);
  replica_.optimizer->BeginStep(step.input.learning_rate, 1 / step.loss_scale.value(), continues);
  if (std::exchange(weight_copies_may_be_stale_, false)) {
    replica_.executable->CastWeights({});
    quantization_inputs_.ForgetCount();
  }
  EnqueueStep(step);
  step.result.forward_ms = executable.PhaseMilliseconds(Phase::kForward) - forward_before;
  step.result.backward_ms = executable.PhaseMilliseconds(Phase::kBackward) - backward_before;
  step.launch_ms = watch.Lap();
}

void TrainStep::CopyInputs(const io::Batch& micro_batch, InFlightStep& step) {
  Stopwatch watch;
  CopyBatch(micro_batch, RowWeight(step), *replica_.executable);
  quantization_inputs_.Set(step.input.step, L2Weight(step));
  step.losses->BeginMicroBatch(micro_batch, step.loss_scale.value());
  replica_.executable->UploadInputs(ContextOf(micro_batch, step.input));
  step.result.input_ms += watch.Lap();
}

void TrainStep::RunKernels(const io::Batch& micro_batch, const StepInput& input,
                           const OnReady& on_ready) {
  EnterPhase(communicator_, collectives::RankPhase::kForward, input.step);
  bool is_forward = true;
  const OnReady ready_in_backward = [&](int ready) {
    if (std::exchange(is_forward, false))
      EnterPhase(communicator_, collectives::RankPhase::kBackward, input.step);
    on_ready(ready);
  };
  replica_.executable->RunKernels(ContextOf(micro_batch, input),
                                  on_ready ? ready_in_backward : OnReady());
}

// Copies the inputs of each micro-batch of the step and calls `run` for it.
void TrainStep::RunMicroBatches(InFlightStep& step, const MicroBatchFunction& run) {
  const io::Batch& batch = step.batch;
  const int64_t rows = static_cast<int64_t>(batch.labels.size()) / options_.accumulation_steps;
  const int64_t count = NumMicroBatches(batch);
  step.losses->BeginStep();
  reduction_->BeginMicroBatches();
  for (int64_t i = 0; i < count; ++i) {
    const io::Batch micro_batch = SliceMicroBatch(batch, i, rows);
    const bool is_last = i + 1 == count;
    CopyInputs(micro_batch, step);
    EndDeviceLap(DeviceTimes::kOutside);
    run(micro_batch, is_last);
    step.losses->EndMicroBatch();
    if (!is_last) reduction_->EndMicroBatch();
    EndDeviceLap(DeviceTimes::kCompute);
  }
}

int64_t TrainStep::NumMicroBatches(const io::Batch& batch) const {
  const int64_t max_count = options_.accumulation_steps;
  return options_.reproducible ? max_count : CountMicroBatches(batch, max_count);
}

// Runs the same work in every step, captured if nothing in it waits for the device.
void TrainStep::Replay(StepReplay& replay, const std::function<void()>& enqueue, int64_t step) {
  decision_->is_on_device() ? replay.Run(enqueue, CanCapture(), step) : enqueue();
}

// Enqueues the whole step, with the update.
void TrainStep::EnqueueStep(InFlightStep& step) {
  const bool has_all_micro_batches = NumMicroBatches(step.batch) == options_.accumulation_steps;
  guard_.SaveStatistics();
  if (options_.survivors != nullptr) options_.survivors->MarkStatisticsSaved();
  decision_->BeginStep();
  if (timeline_ != nullptr) timeline_->BeginStep();
  bool is_first = true;
  RunMicroBatches(step, [&](const io::Batch& micro_batch, bool is_last) {
    if (std::exchange(is_first, false)) BeginDeviceSpan(kStepSpan);
    if (!is_last) {
      Replay(
          micro_batch_replay_, [&] { RunKernels(micro_batch, step.input, {}); }, step.input.step);
      decision_->EndMicroBatch();
      return;
    }
    const auto enqueue = [&] { EnqueueLastMicroBatch(micro_batch, step); };
    has_all_micro_batches ? Replay(last_micro_batch_replay_, enqueue, step.input.step) : enqueue();
  });
  EndDeviceSpan(kStepSpan);
  if (timeline_ != nullptr) timeline_->BeginDownload(*step.timeline);
  step.update_sums->Begin(reinterpret_cast<const std::byte*>(replica_.optimizer->sums()));
  if (device_times_ != nullptr) device_times_->BeginDownload(*step.device_times);
  CountUpdate(step.input);
}

// Enqueues the last micro-batch and all that follows it.
void TrainStep::EnqueueLastMicroBatch(const io::Batch& micro_batch, InFlightStep& step) {
  if (timeline_ != nullptr) timeline_->BeginLastPart();
  const bool is_checked = cross_check_ != nullptr && cross_check_->IsDue(step.input.step);
  if (is_checked) CrossCheckGradients(micro_batch, step);
  reduction_->BeginReduction(step.input.step);
  const std::vector<int>& variables = replica_.store->ready_order();
  const OnReady on_ready = [&](int ready) {
    decision_->OnGradient(step);
    if (!is_checked) CallGradientHook(*replica_.store, variables[ready], step.input.step);
    reduction_->MarkReady(ready);
  };
  if (!is_checked) RunKernels(micro_batch, step.input, on_ready);
  for (size_t i = 0; is_checked && i < variables.size(); ++i) on_ready(static_cast<int>(i));
  decision_->EndMicroBatch();
  reduction_->EndBackward();
  decision_->EndBackward(step);
  WaitForGradients(step.result);
  Stopwatch watch;
  decision_->Decide(step);
  if (options_.survivors != nullptr) options_.survivors->BeginChange();
  replica_.optimizer->Update();
  guard_.RestoreStatisticsUnless(&replica_.optimizer->sums()->is_finite);
  step.result.optimizer_ms += watch.Lap();
}

// Computes the gradients of a step's last micro-batch without reducing them.
void TrainStep::ComputeLastMicroBatch(const io::Batch& micro_batch, const StepInput& input) {
  RunKernels(micro_batch, input, [&](int ready) {
    CallGradientHook(*replica_.store, replica_.store->ready_order()[ready], input.step);
  });
}

// Computes the gradients of the last micro-batch, and lets other ranks check them before they are
// reduced.
void TrainStep::CrossCheckGradients(const io::Batch& micro_batch, InFlightStep& step) {
  const auto recompute = [&](const CheckedBatch& checked) {
    const RunContext context = ContextOf(checked.batch, step.input);
    CopyBatch(checked.batch, checked.row_weight, *replica_.executable);
    replica_.executable->UploadInputs(context);
    replica_.executable->RunKernels(context);
  };
  const auto repeat = [&] {
    guard_.RestoreStatistics();
    RunMicroBatches(step, [&](const io::Batch& part, bool is_last) {
      is_last ? ComputeLastMicroBatch(part, step.input) : RunKernels(part, step.input, {});
    });
    (void)step.losses->FinishLocal();
  };
  ComputeLastMicroBatch(micro_batch, step.input);
  (void)step.losses->FinishLocal();  // the kernels of the check overwrite losses and logits
  cross_check_->Run({.batch = micro_batch, .row_weight = RowWeight(step)}, step.input.step,
                    {.repeat = repeat, .recompute = recompute});
}

void TrainStep::WaitForGradients(StepResult& result) {
  Stopwatch watch;
  const auto end_wait = [&] {
    result.exposed_communication_ms += watch.Lap();
    EndDeviceLap(DeviceTimes::kExposed);
  };
  EndDeviceLap(DeviceTimes::kCompute);
  BeginDeviceSpan(kWaitSpan);
  int64_t end = 0;
  while (const auto range = reduction_->WaitNext()) {
    end_wait();
    end = static_cast<int64_t>(range->offset + range->count);
    replica_.optimizer->Inspect(static_cast<int64_t>(range->offset), end);
    result.optimizer_ms += watch.Lap();
    EndDeviceLap(DeviceTimes::kCompute);
  }
  reduction_->WaitForStatistics();
  end_wait();
  EndDeviceSpan(kWaitSpan);
  // The remaining variables are those that no loss depends on.
  replica_.optimizer->Inspect(end, replica_.store->trainable_count());
  result.optimizer_ms += watch.Lap();
}

// Replaces what the host has measured: the time that it took to launch the waiting.
void TrainStep::TakeDeviceTimes(InFlightStep& step) {
  if (device_times_ == nullptr) return;
  StepResult& result = step.result;
  const DeviceTimes::Milliseconds times = device_times_->Take(*step.device_times);
  result.exposed_communication_ms = times[DeviceTimes::kExposed];
  result.backward_ms = std::max(0.0, result.backward_ms - result.exposed_communication_ms);
  result.compute_ms = times[DeviceTimes::kCompute];
  result.device_wait_ms = times[DeviceTimes::kExposed] + times[DeviceTimes::kSynced];
}

StepResult TrainStep::Run(const io::Batch& batch, const StepInput& input) {
  CAROLE_CHECK_EQ(num_in_flight(), 0, "steps in flight");
  Begin(batch, input);
  return End();
}

// Applies the step on all ranks or on none.
StepResult TrainStep::End() {
  CAROLE_CHECK(num_in_flight() > 0, "no step is in flight");
  InFlightStep& step = Slot(ended_);
  Stopwatch watch;
  decision_->End(step);
  UpdateSums sums;
  std::memcpy(&sums, step.update_sums->Wait(), sizeof sums);
  step.result.backward_ms += watch.Lap();  // all waiting for the device counts as backward
  TakeDeviceTimes(step);
  if (timeline_ != nullptr) step.result.device_spans = timeline_->Take(*step.timeline);
  step.result.batch = step.batch;
  step.result.gradient_norm = optim::GradientNorm(sums, 1 / step.loss_scale.value());
  step.result.loss_scale = step.loss_scale.value();
  step.result.applied = sums.is_finite;
  ++ended_;
  const bool is_local = options_.local_sgd_steps > 0;
  if (step.result.applied && !is_local) KeepState(step);  // audits wait for other ranks
  step.result.applied ? Apply(step, sums) : Discard(step);
  if (!step.result.applied || is_local) KeepState(step);
  const double end_ms = watch.Lap();
  step.result.optimizer_ms += end_ms;
  if (device_times_ == nullptr)
    step.result.compute_ms =
        step.result.forward_ms + step.result.backward_ms + step.result.optimizer_ms;
  reduction_->Tune(step.launch_ms + end_ms);
  if (profiler::IsActive()) profiler::End(step.profiler_range);
  return step.result;
}

// Counts an update that is assumed to be applied until the step ends.
void TrainStep::CountUpdate(const StepInput& input) {
  replica_.optimizer->EndStep();
  replica_.loss_scale.RecordGoodStep();
  if (replica_.moving_averages != nullptr)
    replica_.moving_averages->Update(input.step + 1, &replica_.optimizer->sums()->is_finite);
}

// Returns true if an audit fell due after this step, or, with local SGD, since the last step after
// which replicas were equal.
bool TrainStep::AuditIsDue(int64_t done) const {
  const int64_t every = options_.audit_every_n_steps;
  const int64_t before = done - std::max<int64_t>(1, options_.local_sgd_steps);
  return every > 0 && !replicas_differ_ && done / every > before / every;
}

void TrainStep::Apply(InFlightStep& step, const UpdateSums& sums) {
  const double of_optimizer =
      optim::RegularizationLoss(sums, options_.optimizer_options.weight_decay) +
      replica_.FrozenLoss();
  step.result.regularization_loss += of_optimizer;
  step.result.total_loss += of_optimizer;
  const int64_t done = step.input.step + 1;
  if (options_.local_sgd_steps > 0) {
    replicas_differ_ = true;
    if (ReplicasAreEqualAfter(done)) AverageReplicas(done);
  }
  if (AuditIsDue(done)) Audit(step);
}

// Compares the replicas. A rank whose replica is wrong has no whole state until it is repaired.
void TrainStep::Audit(const InFlightStep& step) {
  SurvivingState* const survivors = options_.survivors;
  const bool is_repaired = audit_.Run(step.input.step + 1, [survivors] {
    if (survivors != nullptr) survivors->BeginChange();
  });
  if (!is_repaired) return;
  weight_copies_may_be_stale_ = true;
  KeepState(step);
}

// Undoes everything that the step has changed, and relaunches the step that was launched after it.
void TrainStep::Discard(InFlightStep& step) {
  for (const auto& [name, value] : step.scalars) replica_.optimizer->SetScalar(name, value);
  replica_.loss_scale = step.loss_scale;
  step.result.overflowed =
      std::isfinite(step.result.data_loss) && replica_.loss_scale.RecordOverflow();
  if (!step.result.overflowed) RecomputeLocalGradients(step);
  guard_.RestoreStatistics();
  if (num_in_flight() == 0) return;
  InFlightStep& next = Slot(ended_);
  next.input.step = step.input.step;
  next.input.learning_rate = step.input.learning_rate;
  Launch(next, false);
}

// Computes the step again without reducing gradients over ranks, and describes what is not finite
// in this rank's own gradients. The weights have not changed, so the gradients are the same as
// before.
void TrainStep::RecomputeLocalGradients(InFlightStep& step) {
  const OnReady on_ready = [&](int ready) { reduction_->FinishAccumulation(ready); };
  RunMicroBatches(step, [&](const io::Batch& micro_batch, bool is_last) {
    RunKernels(micro_batch, step.input, is_last ? on_ready : OnReady());
  });
  step.result.skip_reason = guard_.DescribeNonFinite(step.losses->FinishLocal(), communicator_);
}

void TrainStep::ChooseBucketSize() {
  CAROLE_CHECK_EQ(begun_, 0, "steps were launched before");
  if (!options_.tune_buckets || WaitsForReductions()) return;
  const auto [latency_us, us_per_byte] =
      MeasureReductions(backend_, communicator_, replica_.store->gradients<float>());
  reduction_->PlanBuckets({.bucket_bytes = collectives::BucketBytesFor(latency_us, us_per_byte)});
}

void TrainStep::RecordDeviceSpans() {
  CAROLE_CHECK_EQ(begun_, 0, "steps were launched before");
  timeline_ = std::make_unique<DeviceTimeline>(backend_);
  for (InFlightStep& step : steps_in_flight_) step.timeline = timeline_->MakeDownload();
  communicator_.ObserveDeviceSums(RecorderOfSums(timeline_.get()));
}

void TrainStep::ShareState(const RunFacts& facts, const RunState& progress) {
  if (options_.survivors != nullptr)
    options_.survivors->Describe(replica(), guard_.saved_statistics(), replica_.frozen, facts,
                                 progress);
}

void TrainStep::KeepText(std::string_view text, int64_t epoch) {
  if (options_.survivors != nullptr) options_.survivors->KeepText(text, epoch);
}

void TrainStep::AnnounceProgress(const RunState& progress) {
  if (options_.survivors != nullptr) options_.survivors->Announce(progress);
}

// The state of one rank stands for all ranks. So that of local SGD counts only if replicas are
// equal.
void TrainStep::KeepState(const InFlightStep& step) {
  if (options_.survivors == nullptr || replicas_differ_) return;
  options_.survivors->EndStep(replica_.view(), step.result.applied);
}

void TrainStep::SwapAverages(bool is_swapped, const std::function<void()>& then) {
  const bool was_whole = options_.survivors != nullptr && options_.survivors->BeginChange();
  weight_copies_may_be_stale_ = true;
  if (replica_.moving_averages != nullptr) replica_.moving_averages->Swap();
  if (then) then();
  if (options_.survivors != nullptr) options_.survivors->EndSwap(is_swapped, was_whole);
}

void TrainStep::AverageReplicas(int64_t step) {
  if (!std::exchange(replicas_differ_, false)) return;
  AverageWeights(communicator_, replica(), step);
  AverageRunningStatistics(
      communicator_, replica(),
      RankLocalStatisticsRanges(*replica_.store, replica_.frozen, options_.sync_batch_norm), step);
}

}  // namespace carole::train
