// Evaluation of a net over a split, on any number of ranks.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "collectives/communicator.h"
#include "io/dataset.h"
#include "src/train/inference.h"
#include "src/train/metrics.h"

namespace carole::train {

class Evaluator {
 public:
  // As Inference takes them.
  Evaluator(std::unique_ptr<Graph> graph, ValueId logits, const Backend& backend,
            VariableStore* share = nullptr)
      : net_(std::move(graph), logits, backend, share) {}

  void Bind() { net_.Bind(); }
  VariableStore& store() { return net_.store(); }
  size_t activation_bytes() const { return net_.activation_bytes(); }

  // One pass over the source; every sample counts once. Collective: the counts are those of all
  // ranks, on every rank, and ranks may have different numbers of batches. nullopt, on every rank,
  // soon after one of them was asked to stop.
  std::optional<Metrics> Run(io::BatchSource& source, collectives::Communicator& communicator,
                             const std::function<bool()>& stop_requested = {});

 private:
  Inference net_;
};

}  // namespace carole::train
