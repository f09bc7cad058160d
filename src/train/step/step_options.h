// The options of training steps: TrainStep and its replica are made from them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "collectives/reducer/bucketing.h"
#include "collectives/reducer/reducer.h"
#include "src/optim/optimizers.h"
#include "src/train/state/loss_scale.h"

namespace carole::train {

class SurvivingState;  // src/train/survival/surviving_state.h

struct StepOptions {
  size_t activation_bytes = 0;              // budget for activations (CompileWithin); 0: no limit
  std::optional<size_t> host_memory_bytes;  // per rank; a step that needs more causes a warning
  std::string optimizer = "rmsprop";
  optim::OptimizerOptions optimizer_options;
  double moving_average_decay = 0;            // of all variables; 0: none are kept
  std::vector<std::string> trainable_scopes;  // see FreezeOutside(); empty: all
  collectives::BucketOptions buckets;
  // Measure bucket sizes in the first steps and keep the fastest. On asynchronous devices, they are
  // chosen by ChooseBucketSize() instead.
  bool tune_buckets = false;
  // Number of micro-batches per step (gradient accumulation). A batch has this many times the rows
  // of the graph.
  int64_t accumulation_steps = 1;
  bool sync_batch_norm = false;  // SyncBN: batch statistics are computed over the rows of all ranks
  // If true, running statistics are averaged over ranks after each step. If false, each rank keeps
  // its own, as TF-Slim's clones do.
  bool average_statistics = true;
  bool reproducible = false;  // micro-batches are shards; see src/train/reduction/reproducible.h
  // How gradients are reduced over ranks. Adasum combines the gradients of each rank's own mean
  // loss.
  collectives::Reduction reduction = collectives::Reduction::kSum;
  // Local SGD: each rank applies the gradient of its own mean loss. Weights and slots are averaged
  // over ranks each time this many steps are done. 0: gradients are reduced in every step.
  int64_t local_sgd_steps = 0;
  LossScaleOptions loss_scale;
  // Compare the replicas of ranks, and repair a minority (src/train/integrity/replica_audit.h); 0:
  // never.
  int64_t audit_every_n_steps = 0;
  // Let the next rank compute this rank's gradients again, and compare them
  // (src/train/integrity/cross_check.h); 0: never.
  int64_t cross_check_every = 0;
  // The processor model. Ranks with the same model and number of threads compute the same bits.
  std::string processor;
  // Keeps the state for the rank's guardian; null: nobody does.
  SurvivingState* survivors = nullptr;
  bool replay = true;  // use CUDA graph replay if possible (step_replay.h)
  // Prepares the communicator to reduce device memory, in the order of a binary tree over ranks if
  // `reproducible` is set. Collective. Needed by several ranks whose backend has_own_memory().
  std::function<void()> connect_devices;

  // Returns true if each rank minimizes its own mean loss, not that of the global batch.
  bool MinimizesLocalLoss() const {
    return local_sgd_steps > 0 || reduction != collectives::Reduction::kSum;
  }
  // Returns the number of arenas that have the size of all trainable variables: weights, gradients,
  // optimizer slots, moving averages, and partial sums over micro-batches.
  size_t CountParameterArenas() const;
  // Throws UsageError if options contradict each other.
  void Check() const;
  // Returns true if gradients must be reduced on the host even if a device computes them.
  bool NeedsHostReduction() const { return reduction == collectives::Reduction::kAdasum; }
};

}  // namespace carole::train
