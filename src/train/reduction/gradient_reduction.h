// Reduces the gradients of one step: first over the micro-batches of a rank, then over all ranks.
// It also averages the running statistics of batch norm over ranks.
//
//   reduction.BeginMicroBatches();
//   for each micro-batch but the last: forward, backward, reduction.EndMicroBatch();
//   reduction.BeginReduction(step);
//   for the last micro-batch: forward, backward, with reduction.MarkReady(p) for each gradient that
//     is final;
//   reduction.EndBackward();  // the running statistics are already in flight
//   while (auto range = reduction.WaitNext()) ...;  // gradients of this range are reduced
//   reduction.WaitForStatistics();
//   ... the optimizer updates the weights ...
//   reduction.Tune(step_ms);
//
// Kernels overwrite gradients. So the gradients of earlier micro-batches are kept in separate
// memory, and are added as the gradients of the last micro-batch become final. Ranks communicate
// once per step, overlapped with the last backward.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "collectives/reducer/bucket_tuner.h"
#include "collectives/reducer/reducer.h"
#include "src/graph/variable_store.h"

namespace carole::train {

struct GradientReductionOptions {
  collectives::BucketOptions buckets;
  bool tune_buckets = false;  // try other bucket sizes in the first steps (fp32 sums only)
  collectives::Reduction reduction = collectives::Reduction::kSum;
  // If true, a device's gradients are copied to the host after backward, reduced there by the host
  // algorithms, and copied back. Needed by Adasum, which devices do not have.
  bool through_host = false;
  // Number of shards of all ranks in reproducible training: each micro-batch is a shard with its
  // own running statistics (reproducible.h). 0: training is not reproducible.
  int64_t num_shards = 0;
  // Ranges of the running statistics that each rank computes from its own rows. After each step
  // they are averaged over ranks, or over shards. So replicas stay equal, and saving or restarting
  // changes nothing.
  std::vector<collectives::Range> statistics;
};

// The interface; see the calls above. One thread uses it. On a device the methods only enqueue
// work, in the order of the device's stream, unless through_host is set.
class GradientReduction {
 public:
  virtual ~GradientReduction() = default;

  virtual void BeginMicroBatches() = 0;
  // Keeps the gradients of a micro-batch that is not the last one.
  virtual void EndMicroBatch() = 0;
  // Starts the reduction over ranks. Call it before the backward pass of the last micro-batch.
  virtual void BeginReduction(int64_t step) = 0;
  // The gradient with this index in ready order is final for the last micro-batch.
  virtual void MarkReady(int ready_index) = 0;
  virtual void EndBackward() = 0;
  // Waits for the next bucket and returns its range; nullopt after the last bucket.
  virtual std::optional<collectives::Range> WaitNext() = 0;
  // Waits for the running statistics and divides them by the number of ranks or shards.
  virtual void WaitForStatistics() = 0;
  // Gives the duration of the step to the tuner of buckets.
  virtual void Tune(double step_ms) = 0;
  // Plans the buckets anew, by size. Call it between steps, and not while buckets are tuned.
  // Collective.
  virtual void PlanBuckets(const collectives::BucketOptions& options) = 0;

  // Adds the gradients of the earlier micro-batches to this one, without any reduction over ranks.
  // Used instead of MarkReady() if a step is computed again for this rank's local gradients.
  virtual void FinishAccumulation(int ready_index) = 0;

  // Returns the tuner of buckets; null unless buckets are tuned.
  virtual const collectives::BucketTuner* tuner() const = 0;
};

// Makes a reduction for the store's element type. Communicator and store must outlive it.
// Collective: all ranks make it together.
std::unique_ptr<GradientReduction> MakeGradientReduction(collectives::Communicator& communicator,
                                                         const VariableStore& store,
                                                         const GradientReductionOptions& options);

}  // namespace carole::train
