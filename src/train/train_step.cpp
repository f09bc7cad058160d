#include "src/train/train_step.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "src/core/error.h"
#include "src/core/hash.h"
#include "src/graph/autodiff.h"
#include "src/graph/recompute.h"
#include "src/graph/rewrites.h"
#include "src/train/freeze.h"

namespace carole::train {
namespace {

class Stopwatch {
 public:
  // Milliseconds since the last lap.
  double Lap() {
    const auto now = std::chrono::steady_clock::now();
    const std::chrono::duration<double, std::milli> lap = now - start_;
    start_ = now;
    return lap.count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// By place.
std::vector<optim::Segment> RegularizedSegments(const VariableStore& store) {
  std::vector<optim::Segment> segments;
  for (const VariablePlace& p : store.places()) {
    if (p.trainable && p.l2_regularized) segments.push_back({p.offset, p.offset + p.count});
  }
  std::sort(segments.begin(), segments.end(),
            [](const auto& a, const auto& b) { return a.begin < b.begin; });
  return segments;
}

int64_t NumClasses(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    if (node.kind == OpKind::kSoftmaxCrossEntropy) return graph.shape(node.inputs[0])[1];
  }
  throw InternalError("[train] the graph has no loss over classes");
}

template <typename T>
void CopyBatch(const io::Batch& batch, const Tensor& images, const Tensor& weights) {
  std::copy(batch.images.begin(), batch.images.end(), images.as<T>());
  const T weight = static_cast<T>(1.0 / static_cast<double>(batch.global_valid));
  std::fill_n(weights.as<T>(), weights.size(), T(0));
  std::fill_n(weights.as<T>(), batch.valid, weight);
}

}  // namespace

TrainStep::TrainStep(std::unique_ptr<Graph> graph, const Backend& backend,
                     collectives::Communicator& communicator, const StepOptions& options)
    : graph_(std::move(graph)),
      backend_(backend),
      communicator_(communicator),
      frozen_(FreezeOutside(*graph_, options.trainable_scopes)),
      weight_decay_(options.optimizer_options.weight_decay) {
  num_classes_ = NumClasses(*graph_);
  for (const auto& [name, value] : graph_->losses()) graph_->MarkOutput(value);
  message_.resize(graph_->losses().size() + 2);
  Fuse(*graph_, backend_);
  Differentiate(*graph_);
  executable_ = options.activation_bytes == 0
                    ? std::make_unique<Executable>(*graph_, backend_)
                    : CompileWithin(*graph_, backend_, options.activation_bytes);
  store_ = executable_->MakeStore([&](size_t bytes) {
    gradients_ = communicator_.AllocateArena(bytes);
    return gradients_->data();
  });
  executable_->Bind(*store_);
  CheckLayouts();
  guard_ = std::make_unique<StepGuard>(*store_, frozen_);
  MakeOptimizer(options);
  if (options.moving_average_decay != 0)
    MakeAverages(options.moving_average_decay, backend_.threads());
  MakeReducer(options);
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
  optimizer_ =
      std::make_unique<optim::Optimizer>(optim::FindOptimizer(options.optimizer),
                                         options.optimizer_options, arenas, backend_.threads());
}

void TrainStep::MakeAverages(double decay, int threads) {
  const size_t element = SizeOf(store_->dtype());
  averages_ = std::make_unique<optim::MovingAverages>(
      decay, store_->dtype(),
      std::vector{std::span(store_->weights_base(),
                            static_cast<size_t>(store_->trainable_count()) * element),
                  std::span(store_->statistics_base(), StatisticsBytes(*store_))},
      threads);
}

void TrainStep::MakeReducer(const StepOptions& options) {
  CAROLE_CHECK(!store_->ready_order().empty(), "no variable has a gradient");
  std::vector<collectives::Range> parameters;
  for (int variable : store_->ready_order()) {
    const VariablePlace& p = store_->places()[variable];
    parameters.push_back({static_cast<size_t>(p.offset), static_cast<size_t>(p.count)});
  }
  if (store_->dtype() == DType::kF64) {
    reducer_.emplace<collectives::BasicReducer<double>>(communicator_, store_->gradients<double>(),
                                                        parameters, options.buckets);
  } else {
    reducer_.emplace<collectives::BasicReducer<float>>(communicator_, store_->gradients<float>(),
                                                       parameters, options.buckets);
  }
}

void TrainStep::CopyIn(const io::Batch& batch) {
  const Tensor images = executable_->Input("images");
  const Tensor labels = executable_->Input("labels");
  const Tensor weights = executable_->Input("weights");
  CAROLE_CHECK_EQ(static_cast<int64_t>(batch.images.size()), images.size(), "pixels of a batch");
  CAROLE_CHECK_EQ(static_cast<int64_t>(batch.labels.size()), labels.size(), "labels of a batch");
  CAROLE_CHECK(batch.valid <= labels.size() && batch.global_valid > 0,
               "a batch with {} valid rows of {}, {} over all ranks", batch.valid, labels.size(),
               batch.global_valid);
  for (int32_t label : batch.labels) {
    if (label >= 0 && label < num_classes_) continue;
    throw DataError(
        fmt::format("[train] epoch {}: label out of range: got {}, want 0 to {}; look "
                    "at --labels_offset and at the number of classes",
                    batch.epoch, label, num_classes_ - 1));
  }
  std::copy(batch.labels.begin(), batch.labels.end(), labels.as<int32_t>());
  if (images.dtype == DType::kF64) {
    CopyBatch<double>(batch, images, weights);
  } else {
    CopyBatch<float>(batch, images, weights);
  }
}

void TrainStep::SendLosses(const StepInput& input) {
  size_t i = 0;
  for (const auto& [name, value] : graph_->losses()) message_[i++] = executable_->Output(value)[0];
  message_[i++] = input.ask_stop;
  message_[i] = input.ask_save;
  message_in_flight_ =
      communicator_.AllReduceAsync(std::span(message_), {.what = "losses", .step = input.step});
}

void TrainStep::ReadLosses(StepResult& result) {
  message_in_flight_->Wait();
  message_in_flight_.reset();
  const size_t num_losses = message_.size() - 2;
  result.losses = std::span(message_).first(num_losses);
  for (double loss : result.losses) result.data_loss += loss;
  result.stop = message_[num_losses] > 0;
  result.save = message_[num_losses + 1] > 0;
}

template <typename Reducer>
StepResult TrainStep::RunWith(Reducer& reducer, const io::Batch& batch, const StepInput& input) {
  StepResult result;
  Stopwatch watch;
  CopyIn(batch);
  result.input_ms = watch.Lap();

  const double forward_before = executable_->PhaseMilliseconds(Phase::kForward);
  const double backward_before = executable_->PhaseMilliseconds(Phase::kBackward);
  guard_->Save();
  reducer.BeginStep(input.step);
  const RunContext context{.seed = input.seed,
                           .step = input.step,
                           .first_sample = batch.first_sample,
                           .valid_rows = batch.valid};
  executable_->Run(context, [&](int ready) {
    // Before the first bucket: in the same place on every rank, and there by the time that backward
    // is done.
    if (message_in_flight_ == nullptr) SendLosses(input);
    reducer.MarkReady(ready);
  });
  result.forward_ms = executable_->PhaseMilliseconds(Phase::kForward) - forward_before;
  result.backward_ms = executable_->PhaseMilliseconds(Phase::kBackward) - backward_before;

  watch.Lap();
  ReadLosses(result);
  optimizer_->BeginStep(input.learning_rate);
  WaitForSums(reducer, result);
  watch.Lap();
  result.applied = std::isfinite(result.data_loss) && std::isfinite(result.gradient_norm);
  if (result.applied) {
    Apply(input, result);
  } else {
    TakeBack(context, result);
  }
  result.optimizer_ms += watch.Lap();
  return result;
}

template <typename Reducer>
void TrainStep::WaitForSums(Reducer& reducer, StepResult& result) {
  Stopwatch watch;
  int64_t end = 0;
  while (const auto range = reducer.WaitNext()) {
    result.exposed_communication_ms += watch.Lap();
    end = static_cast<int64_t>(range->offset + range->count);
    optimizer_->Inspect(static_cast<int64_t>(range->offset), end);
    result.optimizer_ms += watch.Lap();
  }
  result.exposed_communication_ms += watch.Lap();
  optimizer_->Inspect(end, store_->trainable_count());  // variables that no loss depends on
  result.gradient_norm = optimizer_->gradient_norm();
  result.optimizer_ms += watch.Lap();
}

void TrainStep::Apply(const StepInput& input, StepResult& result) {
  optimizer_->Update(0, store_->trainable_count());
  result.regularization_loss = optimizer_->EndStep() + FrozenLoss();
  result.total_loss = result.data_loss + result.regularization_loss;
  if (averages_ != nullptr) averages_->Update(input.step + 1);
}

// Runs the step once more without the others: it is the same, and leaves the gradients unsummed.
void TrainStep::TakeBack(const RunContext& context, StepResult& result) {
  result.total_loss = result.data_loss;
  executable_->Run(context);
  result.blame = guard_->Blame(LocalLoss(), communicator_);
  guard_->Restore();
}

double TrainStep::LocalLoss() const {
  double sum = 0;
  for (const auto& [name, value] : graph_->losses()) sum += executable_->Output(value)[0];
  return sum;
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
  frozen_loss_ = 0.5 * weight_decay_ * squares;
  return *frozen_loss_;
}

StepResult TrainStep::Run(const io::Batch& batch, const StepInput& input) {
  if (auto* f64 = std::get_if<collectives::BasicReducer<double>>(&reducer_))
    return RunWith(*f64, batch, input);
  return RunWith(std::get<collectives::BasicReducer<float>>(reducer_), batch, input);
}

}  // namespace carole::train
