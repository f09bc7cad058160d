// The losses of a step: of a rank's micro-batches, and over all ranks, with what else ranks tell
// each other in each step.
//
//   losses.BeginStep();
//   for each micro-batch: losses.BeginPiece(piece, loss_scale); run; losses.EndPiece();
//   losses.Finish();
//   losses.Send(…);
//   const auto sums = losses.Wait();
//
// The host reads a device's only in Finish(), by when it may have been given the next step.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "collectives/communicator.h"
#include "io/pipeline/dataset.h"
#include "src/graph/executable.h"
#include "src/graph/graph.h"
#include "src/train/reduction/pairwise_sum.h"

namespace carole::train {

class StepLosses {
 public:
  // All outlive this; the graph's losses and LogitsOf(graph) are among its outputs.
  StepLosses(const Graph& graph, const Executable& executable, const Backend& backend,
             collectives::Communicator& communicator);

  // The logits of the main head.
  static ValueId LogitsOf(const Graph& graph);
  int64_t num_classes() const { return num_classes_; }

  void BeginStep();
  // The micro-batch that is run next, its loss multiplied by `scale`. The batch's memory stays
  // until Finish().
  void BeginPiece(const io::Batch& piece, double scale);
  // Takes its losses and logits: its forward pass is done, or a device will have done it before
  // anything that is asked for from now on. Does nothing when they were taken.
  void EndPiece();
  // EndPiece(); waits for a device. The sum of all losses over all pieces, of this rank.
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

 private:
  struct Piece {
    io::Batch batch;
    double scale = 1;
    std::vector<double> losses;                        // on a host
    std::vector<std::unique_ptr<Download>> downloads;  // on a device: losses, logits
  };

  void ReadHost(Piece& piece);
  void ReadDevice(Piece& piece);
  void CountCorrect(const Piece& piece, std::span<const double> logits);

  const Executable& executable_;
  const Backend& backend_;
  collectives::Communicator& communicator_;
  std::vector<ValueId> values_;  // losses, then logits
  const int64_t num_classes_;
  std::vector<Piece> pieces_;  // kept from step to step
  size_t num_pieces_ = 0;
  bool is_open_ = false;         // the last piece
  PairwiseSum<double> sums_;     // of micro-batches
  std::vector<double> local_;    // of this rank; empty until all are read
  double correct_ = 0;           // samples of this rank
  std::vector<double> message_;  // losses; samples that were right; ranks that ask to stop, to save
  std::unique_ptr<collectives::Pending> in_flight_;
};

}  // namespace carole::train
