// Evaluation of a net over a split, on any number of ranks.
#pragma once

#include <functional>
#include <optional>

#include "collectives/communicator.h"
#include "io/pipeline/dataset.h"
#include "src/train/evaluation/inference.h"
#include "src/train/evaluation/metrics.h"

namespace carole::train {

// One pass over the source; every sample counts once. Collective: the counts are those of all
// ranks, on every rank, and ranks may have different numbers of batches. nullopt, on every rank,
// soon after one of them was asked to stop. Throws DataError where there is no sample.
std::optional<Metrics> Evaluate(Inference& net, io::BatchSource& source,
                                collectives::Communicator& communicator,
                                const std::function<bool()>& stop_requested = {});

}  // namespace carole::train
