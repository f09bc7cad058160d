// Evaluation of a net over a split, on any number of ranks.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "collectives/communicator.h"
#include "io/dataset.h"
#include "src/graph/executable.h"
#include "src/graph/graph.h"
#include "src/train/metrics.h"

namespace carole::train {

class Evaluator {
 public:
  // `graph`: in inference mode, with input "images" (N,C,H,W); `logits` (N,K) is one of its values.
  // With `share` the variables of a training run are used (same names and layouts, which must
  // outlive this), without it there is a store of its own to be filled.
  Evaluator(std::unique_ptr<Graph> graph, ValueId logits, const Backend& backend,
            VariableStore* share = nullptr);

  VariableStore& store() { return *store_; }

  // One pass over the source; every sample counts once. Collective: the counts are those of all
  // ranks, on every rank, and ranks may have different numbers of batches. nullopt, on every rank,
  // soon after one of them was asked to stop.
  std::optional<Metrics> Run(io::BatchSource& source, collectives::Communicator& communicator,
                             const std::function<bool()>& stop_requested = {});

 private:
  void Count(const io::Batch& batch, Metrics& metrics);

  std::unique_ptr<Graph> graph_;
  ValueId logits_;
  std::unique_ptr<Executable> executable_;
  std::unique_ptr<VariableStore> own_store_;
  VariableStore* store_;
};

}  // namespace carole::train
