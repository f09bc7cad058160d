#include "src/train/evaluate.h"

#include <algorithm>

#include "src/core/check.h"
#include "src/graph/rewrites.h"

namespace carole::train {

Evaluator::Evaluator(std::unique_ptr<Graph> graph, ValueId logits, const Backend& backend,
                     VariableStore* share)
    : graph_(std::move(graph)), logits_(logits), store_(share) {
  graph_->MarkOutput(logits_);
  Fuse(*graph_, backend);
  executable_ = std::make_unique<Executable>(*graph_, backend, share);
  if (store_ == nullptr) {
    own_store_ = executable_->MakeStore();
    store_ = own_store_.get();
  }
  executable_->Bind(*store_);
}

Metrics Evaluator::Run(io::BatchSource& source, collectives::Communicator& communicator) {
  Metrics metrics(graph_->shape(logits_)[1]);
  const Tensor images = executable_->Input("images");
  while (const io::Batch* batch = source.Next()) {
    CAROLE_CHECK_EQ(static_cast<int64_t>(batch->images.size()), images.size(), "pixels of a batch");
    if (images.dtype == DType::kF64) {
      std::copy(batch->images.begin(), batch->images.end(), images.as<double>());
    } else {
      std::copy(batch->images.begin(), batch->images.end(), images.as<float>());
    }
    executable_->Run({.valid_rows = batch->valid});
    metrics.Add(executable_->Output(logits_), batch->labels, batch->valid);
  }
  metrics.SumOverRanks(communicator);
  return metrics;
}

}  // namespace carole::train
