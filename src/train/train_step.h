// One training step of one rank: forward, backward with the all-reduce beside it, and the optimizer
// bucket by bucket as the sums arrive.
//
// The loss that is minimised is the mean over all ranks' samples plus the regularisation term, so N
// ranks at local batch B do what one rank does at batch N*B (batch norm apart, which sees its own
// rank's samples).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/reducer.h"
#include "io/dataset.h"
#include "src/graph/executable.h"
#include "src/graph/graph.h"
#include "src/optim/optimizer.h"

namespace carole::train {

struct StepOptions {
  size_t activation_bytes = 0;  // most that activations may take (CompileWithin); 0: any
  std::string optimizer = "rmsprop";
  optim::OptimizerOptions optimizer_options;
  collectives::BucketOptions buckets;
};

// What changes from step to step beside the batch.
struct StepInput {
  int64_t step = 0;  // updates done before this one
  uint64_t seed = 0;
  double learning_rate = 0;
  bool ask_stop = false;  // this rank wants to stop after the step
  bool ask_save = false;  // this rank wants a checkpoint after the step
};

struct StepResult {
  std::span<const double> losses;  // over all ranks, in the order of graph().losses(); valid until
                                   // the next Run()
  double data_loss = 0;            // their sum
  double regularization_loss = 0;  // of the weights before the update
  double total_loss = 0;
  bool finite = true;  // false: the weights were left as they were
  bool stop = false;   // some rank asked for it; the same on every rank
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

  // Collective. Throws DataError for a label out of range, CommError.
  StepResult Run(const io::Batch& batch, const StepInput& input);

  const Graph& graph() const { return *graph_; }
  const Executable& executable() const { return *executable_; }
  Executable& executable() { return *executable_; }
  VariableStore& store() { return *store_; }
  optim::Optimizer& optimizer() { return *optimizer_; }

 private:
  void CheckLayouts();
  void MakeOptimizer(const StepOptions& options);
  void MakeReducer(const StepOptions& options);
  void CopyIn(const io::Batch& batch);
  void SendLosses(const StepInput& input);
  template <typename Reducer>
  StepResult RunWith(Reducer& reducer, const io::Batch& batch, const StepInput& input);
  void ReadLosses(StepResult& result);

  std::unique_ptr<Graph> graph_;
  const Backend& backend_;
  collectives::Communicator& communicator_;
  std::unique_ptr<Executable> executable_;
  std::unique_ptr<collectives::Arena> gradients_;
  std::unique_ptr<VariableStore> store_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::variant<std::monostate, collectives::BasicReducer<float>, collectives::BasicReducer<double>>
      reducer_;
  int64_t num_classes_ = 0;
  std::vector<double> message_;  // losses, then how many ranks ask to stop and to save
  std::unique_ptr<collectives::Pending> message_in_flight_;
};

}  // namespace carole::train
