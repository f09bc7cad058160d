// A net that only looks: what evaluation and prediction run.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "src/graph/executable.h"
#include "src/graph/graph.h"

namespace carole::train {

class Inference {
 public:
  // `graph`: in inference mode, with input "images" (N,C,H,W); `logits` (N,K) is one of its values.
  // With `share` the variables of a training run are used (same names and layouts, which must
  // outlive this), without it there is a store of its own to be filled.
  Inference(std::unique_ptr<Graph> graph, ValueId logits, const Backend& backend,
            VariableStore* share = nullptr);

  // Takes the activations' memory, as else the first Run() does.
  void Bind();

  VariableStore& store() { return *store_; }
  int64_t num_classes() const { return graph_->shape(logits_)[1]; }

  // Logits (N,K) of images (N,H,W,C), of which the first `valid` rows count.
  std::vector<double> Run(std::span<const float> images, int64_t valid);
  size_t activation_bytes() const { return executable_->statistics().arena_bytes; }
  // Gives the activations' memory back until the next Run().
  void ReleaseMemory() { executable_->ReleaseMemory(); }

 private:
  std::unique_ptr<Graph> graph_;
  ValueId logits_;
  std::unique_ptr<Executable> executable_;
  std::unique_ptr<VariableStore> own_store_;
  VariableStore* store_;
  bool is_bound_ = false;
};

}  // namespace carole::train
