// Evaluates a net over a split of a dataset, on any number of ranks. This is the first header of
// the room src/train/evaluation:
//   inference.h  forward-only execution of a net
//   metrics.h    exact counts of correct predictions, and the confusion matrix
// `carole eval` and the trainer call Evaluate(); `carole predict` uses Inference alone.
#pragma once

#include <functional>
#include <optional>

#include "collectives/communicator.h"
#include "collectives/diagnostics.h"
#include "io/pipeline/dataset.h"
#include "src/train/evaluation/inference.h"
#include "src/train/evaluation/metrics.h"

namespace carole::train {

// Makes one pass over `source`; every sample counts once. Ranks may have different numbers of
// batches. `stop_requested` (may be empty) is polled on each rank after each batch.
// Returns the metrics summed over all ranks, on every rank; or nullopt on every rank, soon after
// one rank was asked to stop. `net` has released its activation memory when this returns metrics.
// Collective. Throws DataError if no rank has a sample.
std::optional<Metrics> Evaluate(Inference& net, io::BatchSource& source,
                                collectives::Communicator& communicator,
                                collectives::Diagnostics& diagnostics,
                                const std::function<bool()>& stop_requested = {});

}  // namespace carole::train
