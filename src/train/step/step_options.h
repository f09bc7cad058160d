// How a rank trains: what TrainStep and its replica are made for.
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

struct StepOptions {
  size_t activation_bytes = 0;        // most that activations may take (CompileWithin); 0: any
  std::optional<size_t> host_memory;  // bytes for each rank of a host; is warned of more
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

  // Whether each rank minimizes its own mean loss.
  bool is_local() const { return local_sgd_steps > 0 || reduction != collectives::Reduction::kSum; }
  // As large as all that is trained: weights, gradients, slots, moving averages, sums of
  // micro-batches.
  size_t num_arenas() const;
  // Throws UsageError for options that do not go together.
  void Check() const;
  // Adasum, and sums whose order is the same for any number of ranks.
  bool needs_host() const { return reproducible || reduction != collectives::Reduction::kSum; }
};

}  // namespace carole::train
