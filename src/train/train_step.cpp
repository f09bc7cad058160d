#include "src/train/train_step.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>

#include "src/core/error.h"
#include "src/core/hash.h"
#include "src/core/stopwatch.h"
#include "src/graph/autodiff.h"
#include "src/graph/precision.h"
#include "src/graph/recompute.h"
#include "src/graph/rewrites.h"
#include "src/optim/update.h"
#include "src/train/averaging.h"
#include "src/train/device_memory.h"
#include "src/train/freeze.h"
#include "src/train/micro_batch.h"
#include "src/train/phase.h"
#include "src/train/replica_audit.h"

namespace carole::train {
namespace {

// By place.
std::vector<Segment> RegularizedSegments(const VariableStore& store) {
  std::vector<Segment> segments;
  for (const VariablePlace& p : store.places()) {
    if (p.trainable && p.l2_regularized) segments.push_back({p.offset, p.offset + p.count});
  }
  std::sort(segments.begin(), segments.end(),
            [](const auto& a, const auto& b) { return a.begin < b.begin; });
  return segments;
}

void CheckOptions(const StepOptions& o) {
  const bool is_plain = o.reduction == collectives::Reduction::kSum && o.local_sgd_steps == 0;
  if (o.reproducible && (o.sync_batch_norm || !is_plain)) {
    throw UsageError(
        "[train] --reproducible: got --sync_batch_norm, --reduction or --local_sgd_steps beside "
        "it, want none: each shard is normalised by itself and gradients are summed");
  }
  if (o.reduction != collectives::Reduction::kSum && o.local_sgd_steps > 0)
    throw UsageError("[train] --local_sgd_steps: got --reduction beside it, want one of the two");
}

}  // namespace

TrainStep::TrainStep(std::unique_ptr<Graph> graph, const Backend& backend,
                     collectives::Communicator& communicator, const StepOptions& options)
    : graph_(std::move(graph)),
      backend_(backend),
      communicator_(communicator),
      options_(options),
      replay_(backend, communicator),
      loss_scale_(options.loss_scale),
      frozen_(FreezeOutside(*graph_, options.trainable_scopes)) {
  CheckOptions(options_);
  if (!backend_.on_host() && communicator_.size() > 1) ConnectDevices();
  graph_->MarkOutput(StepLosses::LogitsOf(*graph_));
  for (const auto& [name, value] : graph_->losses()) graph_->MarkOutput(value);
  Fuse(*graph_, backend_);
  Differentiate(*graph_);
  StoreActivationsAs(backend_.activation_dtype(), *graph_);
  executable_ = options.activation_bytes == 0
                    ? std::make_unique<Executable>(*graph_, backend_)
                    : CompileWithin(*graph_, backend_, options.activation_bytes);
  MakeStore();
  executable_->Bind(*store_);
  if (!backend_.on_host()) ahead_ = std::make_unique<BatchAhead>(*executable_);
  losses_ = std::make_unique<StepLosses>(*graph_, *executable_, backend_, communicator_);
  CheckLayouts();
  guard_ = std::make_unique<StepGuard>(*store_, frozen_);
  MakeOptimizer(options);
  if (options.moving_average_decay != 0) MakeAverages(options.moving_average_decay);
  MakeFlow();
}

void TrainStep::ConnectDevices() {
  if (options_.reproducible || options_.reduction != collectives::Reduction::kSum) {
    throw UsageError(fmt::format(
        "[train] --backend={}: got --reproducible or --reduction with {} ranks, want neither: they "
        "need sums on the host; use --backend=onednn",
        backend_.name(), communicator_.size()));
  }
  CAROLE_CHECK(options_.connect_devices, "no way to sum gradients of {} on {} ranks",
               backend_.name(), communicator_.size());
  options_.connect_devices();
}

// What ranks sum on the host lies in memory that they share.
void TrainStep::MakeStore() {
  VariableStore::Allocate allocate_gradients;
  if (backend_.on_host()) {
    allocate_gradients = [&](size_t bytes) {
      gradients_ = communicator_.AllocateArena(bytes);
      return gradients_->data();
    };
  } else {
    const size_t slots =
        optim::FindOptimizer(options_.optimizer).plan(options_.optimizer_options).slots.size();
    RequireMemory({.backend = backend_,
                   .graph = *graph_,
                   .activation_bytes = executable_->statistics().arena_bytes,
                   .arenas = 2 + slots + (options_.moving_average_decay != 0 ? 1 : 0)});
  }
  store_ = executable_->MakeStore(allocate_gradients);
}

// Gradients and weights travel in the kernels' own layouts.
void TrainStep::CheckLayouts() {
  uint64_t hash = kFnvOffset;
  for (const VariablePlace& p : store_->places()) {
    hash =
        Fnv1a64(fmt::format("{} {} {} {};", p.name, p.layout.ToString(), p.offset, p.count), hash);
  }
  std::vector<uint64_t> all(static_cast<size_t>(communicator_.size()));
  communicator_.AllGather(std::as_bytes(std::span(&hash, 1)),
                          std::as_writable_bytes(std::span(all)), {.what = "layouts"});
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw ConfigError(
        fmt::format("[train] layouts: rank {} keeps its weights in other layouts than rank 0: got "
                    "plan {:016x}, want {:016x}; start all ranks with the same program and flags "
                    "on CPUs of one kind, or set ONEDNN_MAX_CPU_ISA alike",
                    rank, all[rank], all[0]));
  }
}

void TrainStep::MakeOptimizer(const StepOptions& options) {
  optim::Arenas arenas{.dtype = store_->dtype(),
                       .weights = store_->weights_base(),
                       .gradients = store_->gradients_base(),
                       .count = store_->trainable_count(),
                       .regularized = RegularizedSegments(*store_)};
  optimizer_ = std::make_unique<optim::Optimizer>(optim::FindOptimizer(options.optimizer),
                                                  options.optimizer_options, arenas, backend_);
}

void TrainStep::MakeAverages(double decay) {
  const size_t element = SizeOf(store_->dtype());
  averages_ = std::make_unique<optim::MovingAverages>(
      decay, store_->dtype(),
      std::vector{std::span(store_->weights_base(),
                            static_cast<size_t>(store_->trainable_count()) * element),
                  std::span(store_->statistics_base(), StatisticsBytes(*store_))},
      backend_);
}

void TrainStep::MakeFlow() {
  const int64_t size = communicator_.size();
  GradientFlowOptions options{
      .buckets = options_.buckets,
      .tune_buckets = options_.tune_buckets && backend_.on_host() &&
                      options_.local_sgd_steps == 0 &&
                      options_.reduction == collectives::Reduction::kSum,
      .reduction =
          options_.local_sgd_steps > 0 ? collectives::Reduction::kNone : options_.reduction,
      .num_shards = options_.reproducible ? options_.accumulation_steps * size : 0,
      .statistics = {}};
  const bool are_own = !options_.sync_batch_norm && options_.local_sgd_steps == 0;
  if (options_.reproducible || (are_own && options_.average_statistics && size > 1))
    options.statistics = MovingStatistics(*store_, frozen_);
  // Both add in the binary tree that goes on where the ranks' own ends.
  if (options_.reproducible && size > 1)
    communicator_.SetAllReduce(communicator_.local_size() == size ? "shared_memory" : "tree");
  if (store_->dtype() == DType::kF64) {
    flow_.emplace<GradientFlow<double>>(communicator_, *store_, options);
  } else {
    flow_.emplace<GradientFlow<float>>(communicator_, *store_, options);
  }
}

const collectives::BucketTuner* TrainStep::bucket_tuner() const {
  const auto* flow = std::get_if<GradientFlow<float>>(&flow_);
  return flow == nullptr ? nullptr : flow->tuner();
}

bool TrainStep::IsLocal() const {
  return options_.local_sgd_steps > 0 || options_.reduction != collectives::Reduction::kSum;
}

// Without those at the end that hold no sample. What other ranks must take part in is left out only
// where it is empty on all, which then is so on rank 0.
int64_t TrainStep::CountMicroBatches(const io::Batch& batch) const {
  if (options_.reproducible) return options_.accumulation_steps;
  const int64_t rows = static_cast<int64_t>(batch.labels.size()) / options_.accumulation_steps;
  const int64_t samples = options_.sync_batch_norm ? batch.global_valid : batch.valid;
  return std::clamp<int64_t>((samples + rows - 1) / rows, 1, options_.accumulation_steps);
}

RunContext TrainStep::ContextOf(const io::Batch& piece, const StepInput& input) const {
  RunContext context{.seed = input.seed,
                     .step = input.step,
                     .first_sample = piece.first_sample,
                     .valid_rows = piece.valid};
  if (!options_.sync_batch_norm) return context;
  if (piece.valid == 0) context.valid_rows = RunContext::kNoRows;
  context.sum_over_ranks = [&communicator = communicator_,
                            step = input.step](std::span<double> values) {
    communicator.AllReduce(values, {.what = "batch norm", .step = step});
  };
  return context;
}

// Of the loss, so that its gradients are those of a mean over samples.
double TrainStep::RowWeight(const io::Batch& batch) const {
  const int64_t samples = IsLocal() ? std::max<int64_t>(batch.valid, 1) : batch.global_valid;
  return loss_scale_.value() / static_cast<double>(samples);
}

// Returns the piece in memory that lasts.
io::Batch TrainStep::Bring(const io::Batch& piece, double row_weight, const StepInput& input,
                           StepResult& result) {
  Stopwatch watch;
  io::Batch kept = piece;
  if (ahead_ != nullptr) {
    kept = ahead_->Bring(piece, row_weight);
  } else {
    CopyIn(piece, row_weight, *executable_);
  }
  losses_->BeginPiece(kept, loss_scale_.value());
  executable_->Receive(ContextOf(kept, input));
  result.input_ms += watch.Lap();
  return kept;
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
  executable_->RunKernels(ContextOf(piece, input), on_ready ? ready_in_backward : OnReady());
  if (UpdatesFirst()) losses_->Collect();
}

// Forward and backward of all micro-batches; on_ready is called in the last.
template <typename T>
void TrainStep::Compute(GradientFlow<T>& flow, const io::Batch& batch, const StepInput& input,
                        StepResult& result, const OnReady& on_ready) {
  const int64_t count = CountMicroBatches(batch);
  const int64_t rows = static_cast<int64_t>(batch.labels.size()) / options_.accumulation_steps;
  losses_->BeginStep();
  for (int64_t i = 0; i < count; ++i) {
    const io::Batch piece = Bring(MicroBatch(batch, i, rows), RowWeight(batch), input, result);
    const bool is_last = i + 1 == count;
    RunKernels(piece, input, is_last ? on_ready : OnReady());
    if (is_last) break;
    losses_->EndPiece();
    flow.EndMicroBatch();
  }
}

void TrainStep::SendLosses(const io::Batch& batch, const StepInput& input) {
  (void)losses_->Finish();
  const auto valid = static_cast<double>(batch.valid);
  losses_->Send({.step = input.step,
                 .share = IsLocal() ? valid / static_cast<double>(batch.global_valid) : 1,
                 .global_valid = batch.global_valid,
                 .ask_stop = input.ask_stop,
                 .ask_save = input.ask_save});
}

void TrainStep::WaitForLosses(StepResult& result) {
  const StepLosses::Sums sums = losses_->Wait();
  result.losses = sums.losses;
  result.data_loss = std::accumulate(sums.losses.begin(), sums.losses.end(), 0.0);
  result.accuracy = sums.accuracy;
  result.stop = sums.stop;
  result.save = sums.save;
}

template <typename T>
void TrainStep::RunOnHost(GradientFlow<T>& flow, const io::Batch& batch, const StepInput& input,
                          StepResult& result) {
  guard_->Save();
  flow.BeginStep(input.step);
  Compute(flow, batch, input, result, [&](int ready) {
    // Before the first bucket: in the same place on every rank, and there by the time that backward
    // is done.
    if (!losses_->is_sent()) SendLosses(batch, input);
    flow.MarkReady(ready);
  });
  flow.EndBackward();
  EnterPhase(communicator_, collectives::RankPhase::kSums, input.step);
  WaitForLosses(result);
  WaitForSums(flow, result);
}

// Enqueues all, and only then waits.
template <typename T>
void TrainStep::RunOnDevice(GradientFlow<T>& flow, const io::Batch& batch, const StepInput& input,
                            StepResult& result) {
  const OnReady on_ready = [&](int ready) { flow.MarkReady(ready); };
  const auto begin = [&] {
    guard_->Save();
    flow.BeginStep(input.step);
  };
  const auto end = [&] {
    flow.EndBackward();
    WaitForSums(flow, result);
    losses_->Inspect(*optimizer_, input.step);
    optimizer_->Update();
  };
  if (options_.accumulation_steps > 1) {
    begin();
    Compute(flow, batch, input, result, on_ready);
    end();
  } else {
    losses_->BeginStep();
    result.batch = Bring(batch, RowWeight(batch), input, result);
    const bool may_record = options_.replay && backend_.CanRecord() && !options_.reproducible &&
                            !options_.sync_batch_norm && !executable_->is_observed();
    replay_.Run(
        [&] {
          begin();
          RunKernels(result.batch, input, on_ready);
          end();
        },
        may_record, input.step);
    PrepareNext(input, result);
  }
  EnterPhase(communicator_, collectives::RankPhase::kSums, input.step);
  Stopwatch watch;
  SendLosses(result.batch, input);
  WaitForLosses(result);
  result.backward_ms += watch.Lap();  // what a device does is not told apart
}

void TrainStep::PrepareNext(const StepInput& input, StepResult& result) {
  if (input.next == nullptr) return;
  Stopwatch watch;
  if (const io::Batch* next = input.next->Next()) ahead_->Prepare(*next, RowWeight(*next));
  result.input_ms += watch.Lap();
}

template <typename T>
StepResult TrainStep::RunWith(GradientFlow<T>& flow, const io::Batch& batch,
                              const StepInput& input) {
  StepResult result{.batch = batch};
  Stopwatch step_watch;
  CheckBatch(batch, losses_->num_classes());
  const double forward_before = executable_->PhaseMilliseconds(Phase::kForward);
  const double backward_before = executable_->PhaseMilliseconds(Phase::kBackward);
  optimizer_->BeginStep(input.learning_rate, 1 / loss_scale_.value());
  if (UpdatesFirst()) {
    RunOnDevice(flow, batch, input, result);
  } else {
    RunOnHost(flow, batch, input, result);
  }
  result.forward_ms += executable_->PhaseMilliseconds(Phase::kForward) - forward_before;
  result.backward_ms += executable_->PhaseMilliseconds(Phase::kBackward) - backward_before;
  Stopwatch watch;
  EnterPhase(communicator_, collectives::RankPhase::kOptimizer, input.step);
  Conclude(flow, result.batch, input, result);
  result.optimizer_ms += watch.Lap();
  flow.Tune(step_watch.Lap());
  return result;
}

// Applies the step on all ranks or on none.
template <typename T>
void TrainStep::Conclude(GradientFlow<T>& flow, const io::Batch& batch, const StepInput& input,
                         StepResult& result) {
  result.gradient_norm = optimizer_->gradient_norm();
  result.applied = IsFinite(result, input.step);
  result.overflowed =
      !result.applied && std::isfinite(result.data_loss) && loss_scale_.NoteOverflow();
  if (result.applied) {
    Apply(input, result);
    loss_scale_.NoteGood();
  } else if (result.overflowed) {
    result.total_loss = result.data_loss;
    guard_->Restore();
  } else {
    TakeBack(flow, batch, input, result);
  }
}

template <typename T>
void TrainStep::WaitForSums(GradientFlow<T>& flow, StepResult& result) {
  Stopwatch watch;
  int64_t end = 0;
  while (const auto range = flow.WaitNext()) {
    result.exposed_communication_ms += watch.Lap();
    end = static_cast<int64_t>(range->offset + range->count);
    optimizer_->Inspect(static_cast<int64_t>(range->offset), end);
    result.optimizer_ms += watch.Lap();
  }
  flow.WaitForStatistics();
  result.exposed_communication_ms += watch.Lap();
  optimizer_->Inspect(end, store_->trainable_count());  // variables that no loss depends on
  result.optimizer_ms += watch.Lap();
}

// The same on every rank: sums are, and where gradients are not summed ranks ask each other.
bool TrainStep::IsFinite(const StepResult& result, int64_t step) const {
  if (UpdatesFirst()) return optimizer_->is_finite();
  double bad = std::isfinite(result.data_loss) && std::isfinite(result.gradient_norm) ? 0 : 1;
  if (options_.local_sgd_steps > 0)
    communicator_.AllReduce(std::span(&bad, 1), {.what = "verdict", .step = step});
  return bad == 0;
}

void TrainStep::Apply(const StepInput& input, StepResult& result) {
  if (!UpdatesFirst()) optimizer_->Update();
  result.regularization_loss = optimizer_->EndStep() + FrozenLoss();
  result.total_loss = result.data_loss + result.regularization_loss;
  const int64_t done = input.step + 1;
  if (averages_ != nullptr) averages_->Update(done);
  if (options_.local_sgd_steps > 0) {
    has_drifted_ = true;
    if (done % options_.local_sgd_steps == 0) Consolidate(done);
  }
  if (options_.audit_every_n_steps > 0 && done % options_.audit_every_n_steps == 0 && !has_drifted_)
    AuditReplicas(communicator_, *store_, *optimizer_, done);
}

void TrainStep::Consolidate(int64_t step) {
  if (!std::exchange(has_drifted_, false)) return;
  AverageWeights(communicator_, replica(), step);
  if (!options_.sync_batch_norm)
    AverageStatistics(communicator_, replica(), MovingStatistics(*store_, frozen_), step);
}

// Computes the step once more without the others: it is the same, and leaves the gradients
// unsummed.
template <typename T>
void TrainStep::TakeBack(GradientFlow<T>& flow, const io::Batch& batch, const StepInput& input,
                         StepResult& result) {
  result.total_loss = result.data_loss;
  flow.Restart();
  Compute(flow, batch, input, result, [&](int ready) { flow.Join(ready); });
  result.blame = guard_->Blame(losses_->Finish(), communicator_);
  guard_->Restore();
}

double TrainStep::FrozenLoss() {
  if (frozen_loss_) return *frozen_loss_;
  double squares = 0;
  for (int v : frozen_) {
    const VariablePlace& p = store_->places()[v];
    if (!p.l2_regularized) continue;
    std::vector<double> values(static_cast<size_t>(p.tf_shape.size()));
    store_->ReadFrom(store_->statistics_base(), v, std::span<double>(values));
    squares += optim::SumOfSquares(values.data(), p.tf_shape.size());
  }
  frozen_loss_ = 0.5 * options_.optimizer_options.weight_decay * squares;
  return *frozen_loss_;
}

StepResult TrainStep::Run(const io::Batch& batch, const StepInput& input) {
  if (auto* f64 = std::get_if<GradientFlow<double>>(&flow_)) return RunWith(*f64, batch, input);
  return RunWith(std::get<GradientFlow<float>>(flow_), batch, input);
}

}  // namespace carole::train
