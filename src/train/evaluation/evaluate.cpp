#include "src/train/evaluation/evaluate.h"

#include <span>

#include "src/core/error.h"
#include "src/train/step/phase.h"

namespace carole::train {

std::optional<Metrics> Evaluate(Inference& net, io::BatchSource& source,
                                collectives::Communicator& communicator,
                                collectives::Diagnostics& diagnostics,
                                const std::function<bool()>& stop_requested) {
  Metrics metrics(net.num_classes());
  int64_t num_batches = 0;
  io::Batch previous;  // its logits are read after a device has been given the next batch
  for (bool more = true; more;) {
    const io::Batch* batch = source.Next();
    EnterPhase(diagnostics, collectives::RankPhase::kEvaluation, num_batches++);
    const bool has_previous = net.num_in_flight() > 0;
    if (batch != nullptr) net.Begin(batch->images, batch->valid);
    if (has_previous) metrics.Add(net.End(), previous.labels, previous.valid);
    if (batch != nullptr) previous = *batch;
    // A rank without further batches keeps taking part in this all-reduce until all are done.
    double votes[2] = {batch != nullptr ? 1.0 : 0.0,
                       stop_requested && stop_requested() ? 1.0 : 0.0};
    communicator.AllReduce(std::span(votes), {.what = "evaluation"});
    if (votes[1] > 0) {
      if (net.num_in_flight() > 0) net.End();
      return std::nullopt;
    }
    more = votes[0] > 0;
  }
  net.ReleaseMemory();  // for the training steps that follow
  metrics.SumOverRanks(communicator);
  if (metrics.samples() == 0)
    throw DataError(
        "[eval] split: got no usable record, want at least one; see the warnings above");
  return metrics;
}

}  // namespace carole::train
