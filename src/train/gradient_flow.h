// The way of the gradients of one step, from one or more micro-batches to sums over ranks; and of
// the moving statistics of batch norm to their means.
//
//   flow.BeginStep(step);
//   for each micro-batch but the last: forward, backward; flow.EndMicroBatch();
//   the last: forward, backward with flow.MarkReady(p) as gradients become final;
//   flow.EndBackward();
//   … flow.WaitNext() until it has no range any more …
//   flow.WaitForStatistics();
//   … the optimizer …
//   flow.Tune(milliseconds of the step);
//
// Kernels overwrite gradients, so those of earlier micro-batches are kept aside, and joined as the
// last ones become final: ranks communicate once, beside the last backward.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collectives/bucket_tuner.h"
#include "collectives/reducer.h"
#include "src/graph/variable_store.h"
#include "src/train/pairwise_sum.h"
#include "src/train/reproducible.h"

namespace carole::train {

struct GradientFlowOptions {
  collectives::BucketOptions buckets;
  bool tune_buckets = false;  // try others than these in the first steps (fp32 sums only)
  collectives::Reduction reduction = collectives::Reduction::kSum;
  // In reproducible training the shards of all ranks: micro-batches are shards, each with moving
  // statistics of its own. 0: none.
  int64_t num_shards = 0;
  // Moving statistics that ranks take from rows of their own: after each step they are the mean
  // over ranks, or over shards. So ranks stay equal, and a save or a restart changes nothing.
  std::vector<collectives::Range> statistics;
};

// T is the store's type. Communicator and store outlive this; all ranks make it together.
template <typename T>
class GradientFlow {
 public:
  GradientFlow(collectives::Communicator& communicator, const VariableStore& store,
               const GradientFlowOptions& options);

  void BeginStep(int64_t step);
  void EndMicroBatch();
  void MarkReady(int ready_index);
  void EndBackward();
  std::optional<collectives::Range> WaitNext() { return reducer_.WaitNext(); }
  void WaitForStatistics();
  void Tune(double step_ms);

  // To compute a step's micro-batches once more, for this rank's own gradients: first Restart(),
  // and Join() in the place of MarkReady().
  void Restart();
  void Join(int ready_index);

  const collectives::BasicReducer<T>& reducer() const { return reducer_; }
  // Null unless buckets are tuned.
  const collectives::BucketTuner* tuner() const { return tuner_.get(); }

 private:
  collectives::Communicator& communicator_;
  const VariableStore& store_;
  const GradientFlowOptions options_;
  collectives::BasicReducer<T> reducer_;
  std::unique_ptr<collectives::BucketTuner> tuner_;
  const Vectors<T> memory_;
  PairwiseSum<T> gradients_;
  struct Statistics {
    std::span<T> values;
    ShardStatistics<T> shards;
    std::unique_ptr<collectives::Pending> in_flight;
  };
  std::vector<Statistics> statistics_;
  int64_t step_ = 0;
};

}  // namespace carole::train
