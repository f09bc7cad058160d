#include "src/train/evaluate.h"

#include <span>

#include "src/core/error.h"
#include "src/train/phase.h"

namespace carole::train {

std::optional<Metrics> Evaluator::Run(io::BatchSource& source,
                                      collectives::Communicator& communicator,
                                      const std::function<bool()>& stop_requested) {
  Metrics metrics(net_.num_classes());
  int64_t num_batches = 0;
  for (bool more = true; more;) {
    const io::Batch* batch = source.Next();
    EnterPhase(communicator, collectives::RankPhase::kEvaluation, num_batches++);
    if (batch != nullptr)
      metrics.Add(net_.Run(batch->images, batch->valid), batch->labels, batch->valid);
    // A rank that has no batches left keeps the others company.
    double votes[2] = {batch != nullptr ? 1.0 : 0.0,
                       stop_requested && stop_requested() ? 1.0 : 0.0};
    communicator.AllReduce(std::span(votes), {.what = "evaluation"});
    if (votes[1] > 0) return std::nullopt;
    more = votes[0] > 0;
  }
  net_.ReleaseMemory();  // training goes on
  metrics.SumOverRanks(communicator);
  if (metrics.samples() == 0)
    throw DataError("[eval] the split holds no good record: see the warnings above");
  return metrics;
}

}  // namespace carole::train
