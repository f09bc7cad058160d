#include "src/train/evaluation/evaluate.h"

#include <span>

#include "src/core/error.h"
#include "src/train/step/phase.h"

namespace carole::train {

std::optional<Metrics> Evaluate(Inference& net, io::BatchSource& source,
                                collectives::Communicator& communicator,
                                const std::function<bool()>& stop_requested) {
  Metrics metrics(net.num_classes());
  int64_t num_batches = 0;
  io::Batch begun;  // its logits are waited for when a device has the batch after it
  for (bool more = true; more;) {
    const io::Batch* batch = source.Next();
    EnterPhase(communicator, collectives::RankPhase::kEvaluation, num_batches++);
    const bool is_under_way = net.num_in_flight() > 0;
    if (batch != nullptr) net.Begin(batch->images, batch->valid);
    if (is_under_way) metrics.Add(net.End(), begun.labels, begun.valid);
    if (batch != nullptr) begun = *batch;
    // A rank that has no batches left keeps the others company.
    double votes[2] = {batch != nullptr ? 1.0 : 0.0,
                       stop_requested && stop_requested() ? 1.0 : 0.0};
    communicator.AllReduce(std::span(votes), {.what = "evaluation"});
    if (votes[1] > 0) {
      if (net.num_in_flight() > 0) net.End();
      return std::nullopt;
    }
    more = votes[0] > 0;
  }
  net.ReleaseMemory();  // training goes on
  metrics.SumOverRanks(communicator);
  if (metrics.samples() == 0)
    throw DataError("[eval] the split holds no good record: see the warnings above");
  return metrics;
}

}  // namespace carole::train
