// The losses of a step: of a rank's micro-batches, and over all ranks, with what else ranks tell
// each other in each step.
//
//   losses.BeginStep();
//   for each micro-batch: losses.BeginPiece(piece, loss_scale); run; losses.EndPiece() but after
//   the last one
//   losses.Send(…);
//   const auto sums = losses.Wait();
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "collectives/communicator.h"
#include "io/dataset.h"
#include "src/graph/executable.h"
#include "src/graph/graph.h"
#include "src/optim/optimizer.h"
#include "src/train/pairwise_sum.h"

namespace carole::train {

class StepLosses {
 public:
  // All outlive this; the graph's losses and logits(graph) are among its outputs.
  StepLosses(const Graph& graph, const Executable& executable, const Backend& backend,
             collectives::Communicator& communicator);

  // The logits of the main head.
  static ValueId LogitsOf(const Graph& graph);
  int64_t num_classes() const { return num_classes_; }

  void BeginStep();
  // The micro-batch that is run next, its loss multiplied by `scale`.
  void BeginPiece(const io::Batch& piece, double scale);
  // More of them follow. Waits for the kernels.
  void EndPiece();
  // Reads those of the last piece, once its forward pass is done, which this waits for; returns
  // their sum over all pieces, of this rank.
  double Finish();

  struct Message {
    int64_t step = 0;
    double share = 1;  // of the losses that count
    int64_t global_valid = 1;
    bool ask_stop = false;
    bool ask_save = false;
  };
  // To all ranks, after Finish().
  void Send(const Message& message);
  bool is_sent() const { return in_flight_ != nullptr; }

  // Over all ranks; valid until the next Wait().
  struct Sums {
    std::span<const double> losses;  // in the order of graph.losses()
    double accuracy = 0;             // share of the step's samples that were right
    bool stop = false;               // some rank asked for it
    bool save = false;
  };
  Sums Wait();

  // On a device, where nothing above waits for it: adds those of the piece that was run last.
  void Collect();
  // Lets the optimizer look at all ranks', so that their devices decide alike. Collective.
  void Inspect(optim::Optimizer& optimizer, int64_t step);

 private:
  std::vector<double> Read();

  const Graph& graph_;
  const Executable& executable_;
  const Backend& backend_;
  collectives::Communicator& communicator_;
  const ValueId logits_;
  const int64_t num_classes_;
  io::Batch piece_;
  double scale_ = 1;
  PairwiseSum<double> sums_;     // of micro-batches
  std::vector<double> local_;    // of this rank; empty until the last are read
  double correct_ = 0;           // samples of this rank
  DeviceMemory device_;          // a float for each
  bool is_collected_ = false;    // something is in device_
  std::vector<double> message_;  // losses; samples that were right; ranks that ask to stop, to save
  std::unique_ptr<collectives::Pending> in_flight_;
};

}  // namespace carole::train
