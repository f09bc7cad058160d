// The way of the gradients of one step, from one or more micro-batches to sums over ranks; and of
// the moving statistics of batch norm to their means.
//
//   flow.BeginMicroBatches();
//   for each micro-batch but the last: forward, backward; flow.EndMicroBatch();
//   flow.BeginSums(step);
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
#include <vector>

#include "collectives/reducer/bucket_tuner.h"
#include "collectives/reducer/reducer.h"
#include "src/graph/variable_store.h"

namespace carole::train {

struct GradientFlowOptions {
  collectives::BucketOptions buckets;
  bool tune_buckets = false;  // try others than these in the first steps (fp32 sums only)
  collectives::Reduction reduction = collectives::Reduction::kSum;
  // What lies on a device is brought to the host once backward has ended, summed there by the
  // algorithms of hosts, and sent back: the device's own sums have an order of their choice.
  bool through_host = false;
  // In reproducible training the shards of all ranks: micro-batches are shards, each with moving
  // statistics of its own. 0: none.
  int64_t num_shards = 0;
  // Moving statistics that ranks take from rows of their own: after each step they are the mean
  // over ranks, or over shards. So ranks stay equal, and a save or a restart changes nothing.
  std::vector<collectives::Range> statistics;
};

class GradientReduction {
 public:
  virtual ~GradientReduction() = default;

  virtual void BeginMicroBatches() = 0;
  virtual void EndMicroBatch() = 0;
  virtual void BeginSums(int64_t step) = 0;  // of these micro-batches, before the last one
  virtual void MarkReady(int ready_index) = 0;
  virtual void EndBackward() = 0;
  virtual std::optional<collectives::Range> WaitNext() = 0;
  virtual void WaitForStatistics() = 0;
  virtual void Tune(double step_ms) = 0;

  // In the place of MarkReady() where a step's micro-batches are computed once more, for this
  // rank's own gradients: nothing is summed over ranks.
  virtual void Join(int ready_index) = 0;

  // Null unless buckets are tuned.
  virtual const collectives::BucketTuner* tuner() const = 0;
};

// Of the store's type. Communicator and store outlive it; all ranks make it together.
std::unique_ptr<GradientReduction> MakeGradientFlow(collectives::Communicator& communicator,
                                                    const VariableStore& store,
                                                    const GradientFlowOptions& options);

}  // namespace carole::train
