// A net that only looks: what evaluation and prediction run.
#pragma once

#include <array>
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

  // Takes the activations' memory, as else the first Begin() does.
  void Bind();

  VariableStore& store() { return *store_; }
  int64_t num_classes() const { return graph_->shape(logits_)[1]; }

  // Takes images (N,H,W,C), of which the first `valid` rows count; they may go when it returns. A
  // device is given the next ones, at most kMostUnderWay, while it computes.
  void Begin(std::span<const float> images, int64_t valid);
  // Logits (N,K) of those that were begun first.
  std::vector<double> End();
  // Begin() and End(), where nothing is under way.
  std::vector<double> Run(std::span<const float> images, int64_t valid);

  static constexpr int64_t kMostUnderWay = 2;
  int64_t num_in_flight() const { return begun_ - ended_; }

  size_t activation_bytes() const { return executable_->statistics().arena_bytes; }
  // Gives the activations' memory back until the next Begin().
  void ReleaseMemory() { executable_->ReleaseMemory(); }

 private:
  struct InFlightStep {
    std::vector<double> logits;          // on a host
    std::unique_ptr<Download> download;  // on a device
  };
  InFlightStep& Slot(int64_t number) { return steps_in_flight_[number % kMostUnderWay]; }

  std::unique_ptr<Graph> graph_;
  ValueId logits_;
  std::unique_ptr<Executable> executable_;
  std::unique_ptr<VariableStore> own_store_;
  VariableStore* store_;
  bool is_bound_ = false;
  std::array<InFlightStep, kMostUnderWay> steps_in_flight_;
  int64_t begun_ = 0, ended_ = 0;
};

}  // namespace carole::train
