#include "src/train/evaluate.h"

#include <algorithm>
#include <span>

#include "src/core/check.h"
#include "src/graph/precision.h"
#include "src/graph/rewrites.h"
#include "src/train/phase.h"

namespace carole::train {

Evaluator::Evaluator(std::unique_ptr<Graph> graph, ValueId logits, const Backend& backend,
                     VariableStore* share)
    : graph_(std::move(graph)), logits_(logits), store_(share) {
  graph_->MarkOutput(logits_);
  Fuse(*graph_, backend);
  StoreActivationsAs(backend.activation_dtype(), *graph_);
  executable_ = std::make_unique<Executable>(*graph_, backend, share);
  if (store_ == nullptr) {
    own_store_ = executable_->MakeStore();
    store_ = own_store_.get();
  }
  executable_->Bind(*store_);
}

void Evaluator::Count(const io::Batch& batch, Metrics& metrics) {
  const Tensor images = executable_->Input("images");
  CAROLE_CHECK_EQ(static_cast<int64_t>(batch.images.size()), images.size(), "pixels of a batch");
  if (images.dtype == DType::kF64) {
    std::copy(batch.images.begin(), batch.images.end(), images.as<double>());
  } else {
    std::copy(batch.images.begin(), batch.images.end(), images.as<float>());
  }
  executable_->Run({.valid_rows = batch.valid});
  metrics.Add(executable_->Output(logits_), batch.labels, batch.valid);
}

std::optional<Metrics> Evaluator::Run(io::BatchSource& source,
                                      collectives::Communicator& communicator,
                                      const std::function<bool()>& stop_requested) {
  Metrics metrics(graph_->shape(logits_)[1]);
  int64_t num_batches = 0;
  for (bool more = true; more;) {
    const io::Batch* batch = source.Next();
    EnterPhase(communicator, collectives::RankPhase::kEvaluation, num_batches++);
    if (batch != nullptr) Count(*batch, metrics);
    // A rank that has no batches left keeps the others company.
    double votes[2] = {batch != nullptr ? 1.0 : 0.0,
                       stop_requested && stop_requested() ? 1.0 : 0.0};
    communicator.AllReduce(std::span(votes), {.what = "evaluation"});
    if (votes[1] > 0) return std::nullopt;
    more = votes[0] > 0;
  }
  metrics.SumOverRanks(communicator);
  return metrics;
}

}  // namespace carole::train
