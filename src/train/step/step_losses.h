// The losses of a step: sums them over the micro-batches of a rank, then over all ranks. The same
// all-reduce carries the number of correct predictions (of the most
// probable class, if labels are soft) and the ranks' requests to stop or to save.
//
//   losses.BeginStep();
//   for each micro-batch {
//     losses.BeginMicroBatch(micro_batch, loss_scale);
//     ...  // run the kernels
//     losses.EndMicroBatch();
//   }
//   losses.FinishLocal();
//   losses.BeginAllReduce(message);
//   const auto global = losses.WaitForAllReduce();
//
// The host reads the losses of an asynchronous device only in FinishLocal(). By then the device may
// already have been given the next step.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "collectives/communicator.h"
#include "io/pipeline/dataset.h"
#include "src/graph/graph.h"
#include "src/graph/plan/executable.h"
#include "src/graph/plan/output_download.h"
#include "src/train/reduction/pairwise_sum.h"

namespace carole::train {

// The losses of one step in flight. One thread uses it.
class StepLosses {
 public:
  // All arguments must outlive this. The losses of the graph and LogitsOf(graph) must be among its
  // outputs.
  StepLosses(const Graph& graph, const Executable& executable,
             collectives::Communicator& communicator);

  // Returns the logits (N,K) of the main classifier head.
  static ValueId LogitsOf(const Graph& graph);
  int64_t num_classes() const { return num_classes_; }

  void BeginStep();
  // Announces the micro-batch that runs next; its loss is multiplied by `scale`. The memory of the
  // batch must stay valid until FinishLocal().
  void BeginMicroBatch(const io::Batch& micro_batch, double scale);
  // Enqueues the download of the losses and logits of the micro-batch. Call it after its forward
  // pass was enqueued. A second call does nothing.
  void EndMicroBatch();
  // Calls EndMicroBatch() and waits for the downloads. Returns the sum of all losses of this rank
  // over all micro-batches.
  double FinishLocal();

  // The part of a rank in the all-reduce, in addition to its losses and correct predictions.
  struct Message {
    int64_t step = 0;
    double loss_weight = 1;    // factor of this rank's losses
    int64_t global_valid = 1;  // valid samples of all ranks
    bool request_stop = false;
    bool request_save = false;
  };
  // Starts the all-reduce. Call it after FinishLocal(). Collective.
  void BeginAllReduce(const Message& message);
  bool is_reducing() const { return in_flight_ != nullptr; }

  // The results over all ranks; the span is valid until the next all-reduce of this object.
  struct GlobalLosses {
    std::span<const double> losses;  // in the order of graph.losses()
    double regularization = 0;       // the one among `losses` that does not depend on samples
    double accuracy = 0;             // correct predictions divided by samples
    bool stop = false;               // some rank requested it
    bool save = false;               // some rank requested it
  };
  GlobalLosses WaitForAllReduce();

 private:
  struct MicroBatchLosses {
    io::Batch batch;
    double scale = 1;
    std::vector<OutputDownload> downloads;  // losses, then logits
    std::vector<double> losses;
  };

  void Read(MicroBatchLosses& micro_batch);
  void CountCorrect(const MicroBatchLosses& micro_batch, std::span<const double> logits);

  const Executable& executable_;
  collectives::Communicator& communicator_;
  std::vector<ValueId> values_;  // losses, then logits
  size_t regularization_;        // index of this loss; the number of losses if there is none
  const int64_t num_classes_;
  std::vector<MicroBatchLosses> micro_batches_;  // reused in every step
  size_t num_micro_batches_ = 0;
  bool is_open_ = false;              // between BeginMicroBatch() and EndMicroBatch()
  PairwiseSum<double> sum_;           // over micro-batches
  std::vector<double> local_losses_;  // sums of this rank; empty until all losses are read
  double correct_ = 0;                // correct predictions of this rank
  std::vector<double> message_;       // losses, accuracy, number of stop and of save requests
  std::unique_ptr<collectives::Pending> in_flight_;
};

}  // namespace carole::train
