// One training step of one rank: forward, backward with the all-reduce beside it, and the optimizer
// when all sums have arrived and are finite. So every rank applies the whole step, or none does.
//
// The loss that is minimised is the mean over all ranks' samples plus the regularisation term, so N
// ranks at local batch B do what one rank does at batch N*B (batch norm apart, which sees the
// samples of its own rank and micro-batch unless it is told otherwise).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/reducer.h"
#include "io/dataset.h"
#include "src/graph/executable.h"
#include "src/graph/graph.h"
#include "src/optim/moving_averages.h"
#include "src/optim/optimizer.h"
#include "src/train/batch_ahead.h"
#include "src/train/gradient_flow.h"
#include "src/train/loss_scale.h"
#include "src/train/state.h"
#include "src/train/step_guard.h"
#include "src/train/step_losses.h"
#include "src/train/step_replay.h"

namespace carole::train {

struct StepOptions {
  size_t activation_bytes = 0;  // most that activations may take (CompileWithin); 0: any
  std::string optimizer = "rmsprop";
  optim::OptimizerOptions optimizer_options;
  double moving_average_decay = 0;            // of all variables; 0: none are kept
  std::vector<std::string> trainable_scopes;  // see FreezeOutside(); empty: all
  collectives::BucketOptions buckets;
  bool tune_buckets = false;  // in the first steps, for the fastest ones (bucket_tuner.h)
  // Micro-batches of a step: batches hold so many times the graph's rows.
  int64_t accumulation_steps = 1;
  bool sync_batch_norm = false;  // batch statistics are those of all ranks' rows
  // After each step moving statistics are the mean over ranks; false: each rank keeps its own, as
  // TF-Slim's replicas do.
  bool average_statistics = true;
  bool reproducible = false;  // micro-batches are shards, powers of two of them (reproducible.h)
  // How ranks' gradients become one. Adasum takes those of each rank's own mean loss.
  collectives::Reduction reduction = collectives::Reduction::kSum;
  // Local SGD: each rank steps by the gradient of its own mean loss, and weights and slots are
  // averaged every so many steps. 0: gradients are reduced in each step.
  int64_t local_sgd_steps = 0;
  LossScaleOptions loss_scale;
  int64_t audit_every_n_steps = 0;  // of replicas (replica_audit.h); 0: never
  bool replay = true;               // a device's kernels where they can be recorded (step_replay.h)
  // Lets the communicator sum what the backend holds, where that is not on_host(); several ranks
  // need it there. Collective.
  std::function<void()> connect_devices;
};

// What changes from step to step beside the batch.
struct StepInput {
  int64_t step = 0;  // updates done before this one
  uint64_t seed = 0;
  double learning_rate = 0;
  bool ask_stop = false;  // this rank wants to stop after the step
  bool ask_save = false;  // this rank wants a checkpoint after the step
  // On a device, asked for the next batch while the step is under way: it is copied meanwhile, and
  // then is next_batch(). Null: none. Ends the lifetime of this batch's memory, see
  // StepResult::batch.
  io::BatchSource* next = nullptr;
};

struct StepResult {
  io::Batch batch;                 // of the step, where its memory lasts until the next Run()
  std::span<const double> losses;  // over all ranks, in the order of graph().losses(); valid until
                                   // the next Run()
  double data_loss = 0;            // their sum
  double accuracy = 0;             // share of this step's samples, over all ranks, that were right
  double regularization_loss = 0;  // of the weights before the update, frozen ones included
  double total_loss = 0;
  double gradient_norm = 0;  // of the data loss, over all variables, before clipping
  bool overflowed = false;   // so not applied, as the loss scale was too large: it is halved now
  bool applied = true;       // false: weights, slots and statistics were left as they were,
  std::string blame;         // because of this (StepGuard::Blame)
  bool stop = false;         // some rank asked for it; the same on every rank
  bool save = false;
  double input_ms = 0;  // copying the batch in
  double forward_ms = 0;
  double backward_ms = 0;
  double optimizer_ms = 0;
  double exposed_communication_ms = 0;  // waited for sums after backward was done
};

// Owns the replica of one rank: graph, plan, weights, gradients, slots. One thread uses it.
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

  // Collective. Throws DataError for a label out of range, CommError also when an audit finds that
  // replicas differ.
  StepResult Run(const io::Batch& batch, const StepInput& input);

  // To be given to the next Run(); null where StepInput::next gave none.
  const io::Batch* next_batch() const { return ahead_ ? ahead_->prepared() : nullptr; }

  // Makes replicas equal again after steps of local SGD, before they are saved or evaluated:
  // weights, slots and statistics become their mean over ranks. Collective.
  void Consolidate(int64_t step);

  const Graph& graph() const { return *graph_; }
  const Executable& executable() const { return *executable_; }
  Executable& executable() { return *executable_; }
  VariableStore& store() { return *store_; }
  optim::Optimizer& optimizer() { return *optimizer_; }
  // All that a checkpoint holds.
  Replica replica() { return {*store_, *optimizer_, averages_.get(), &loss_scale_}; }
  const LossScale& loss_scale() const { return loss_scale_; }
  int64_t replays() const { return replay_.replays(); }  // steps whose kernels were recorded
  // Null where nothing is tuned.
  const collectives::BucketTuner* bucket_tuner() const;

 private:
  using OnReady = Executable::GradientReady;

  void MakeStore();
  void ConnectDevices();
  void CheckLayouts();
  void MakeOptimizer(const StepOptions& options);
  void MakeAverages(double decay);
  void MakeFlow();
  // Whether each rank minimises its own mean loss.
  bool IsLocal() const;
  // Whether the device updates the weights before the host knows if all is finite: it finds that
  // out by itself, so that a step does not wait for the host.
  bool UpdatesFirst() const { return !backend_.on_host() && options_.local_sgd_steps == 0; }
  int64_t CountMicroBatches(const io::Batch& batch) const;
  RunContext ContextOf(const io::Batch& piece, const StepInput& input) const;
  double RowWeight(const io::Batch& batch) const;
  io::Batch Bring(const io::Batch& piece, double row_weight, const StepInput& input,
                  StepResult& result);
  void RunKernels(const io::Batch& piece, const StepInput& input, const OnReady& on_ready);
  template <typename T>
  void Compute(GradientFlow<T>& flow, const io::Batch& batch, const StepInput& input,
               StepResult& result, const OnReady& on_ready);
  template <typename T>
  void RunOnHost(GradientFlow<T>& flow, const io::Batch& batch, const StepInput& input,
                 StepResult& result);
  template <typename T>
  void RunOnDevice(GradientFlow<T>& flow, const io::Batch& batch, const StepInput& input,
                   StepResult& result);
  void PrepareNext(const StepInput& input, StepResult& result);
  void SendLosses(const io::Batch& batch, const StepInput& input);
  template <typename T>
  StepResult RunWith(GradientFlow<T>& flow, const io::Batch& batch, const StepInput& input);
  void WaitForLosses(StepResult& result);
  template <typename T>
  void Conclude(GradientFlow<T>& flow, const io::Batch& batch, const StepInput& input,
                StepResult& result);
  template <typename T>
  void WaitForSums(GradientFlow<T>& flow, StepResult& result);
  bool IsFinite(const StepResult& result, int64_t step) const;
  void Apply(const StepInput& input, StepResult& result);
  template <typename T>
  void TakeBack(GradientFlow<T>& flow, const io::Batch& batch, const StepInput& input,
                StepResult& result);
  double FrozenLoss();

  std::unique_ptr<Graph> graph_;
  const Backend& backend_;
  collectives::Communicator& communicator_;
  const StepOptions options_;
  std::unique_ptr<Executable> executable_;
  std::unique_ptr<collectives::Arena> gradients_;
  std::unique_ptr<VariableStore> store_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<optim::MovingAverages> averages_;
  std::unique_ptr<StepGuard> guard_;
  std::unique_ptr<StepLosses> losses_;
  std::unique_ptr<BatchAhead> ahead_;  // null on hosts
  StepReplay replay_;
  LossScale loss_scale_;
  std::vector<int> frozen_;            // variables that would be trainable
  std::optional<double> frozen_loss_;  // their share of the regularization loss
  std::variant<std::monostate, GradientFlow<float>, GradientFlow<double>> flow_;
  bool has_drifted_ = false;  // from the other ranks, in local SGD
};

}  // namespace carole::train
