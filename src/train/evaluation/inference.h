// Forward-only execution of a net, used by evaluation and prediction.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "src/graph/graph.h"
#include "src/graph/plan/executable.h"
#include "src/graph/plan/output_download.h"

namespace carole::train {

// Runs batches of images through a net. Up to kMaxInFlight batches are in flight, so that a device
// computes one while the host prepares the next. One thread uses it.
class Inference {
 public:
  // `graph` is built in inference mode. Its input is "images" (N,C,H,W); `logits` (N,K) is one of
  // its values. Takes the graph; `backend` must outlive this.
  // With `share`, the net reads the variables of a training run: the store must have the same names
  // and layouts and must outlive this. Without it, the net has its own store, for the caller to
  // fill.
  Inference(std::unique_ptr<Graph> graph, ValueId logits, const Backend& backend,
            VariableStore* share = nullptr);

  // Allocates the activation memory. The first Begin() does so if the caller did not.
  void Bind();

  VariableStore& store() { return *store_; }
  int64_t num_classes() const { return graph_->shape(logits_)[1]; }

  // Starts a batch. `images` (N,H,W,C) are copied; only the first `valid` rows count. At most
  // kMaxInFlight batches may be in flight. Does not wait for a device.
  void Begin(std::span<const float> images, int64_t valid);
  // Waits for the oldest batch in flight and returns its logits (N,K).
  std::vector<double> End();
  // Begin() and End(). No other batch may be in flight.
  std::vector<double> Run(std::span<const float> images, int64_t valid);

  static constexpr int64_t kMaxInFlight = 2;
  int64_t num_in_flight() const { return begun_ - ended_; }

  size_t activation_bytes() const { return executable_->plan().statistics.arena_bytes; }
  // Frees the activation memory until the next Begin().
  void ReleaseMemory() { executable_->ReleaseMemory(); }

 private:
  OutputDownload& Slot(int64_t number) { return in_flight_[number % kMaxInFlight]; }

  std::unique_ptr<Graph> graph_;
  ValueId logits_;
  std::unique_ptr<Executable> executable_;
  std::unique_ptr<VariableStore> own_store_;
  VariableStore* store_;
  bool is_bound_ = false;
  std::array<OutputDownload, kMaxInFlight> in_flight_;  // logits
  int64_t begun_ = 0, ended_ = 0;
};

}  // namespace carole::train
