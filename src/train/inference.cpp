#include "src/train/inference.h"

#include <utility>

#include "src/graph/precision.h"
#include "src/graph/rewrites.h"
#include "src/train/micro_batch.h"

namespace carole::train {

Inference::Inference(std::unique_ptr<Graph> graph, ValueId logits, const Backend& backend,
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
}

void Inference::Bind() {
  if (!is_bound_) executable_->Bind(*store_);
  is_bound_ = true;
}

std::vector<double> Inference::Run(std::span<const float> images, int64_t valid) {
  Bind();
  CopyImages(images, *executable_);
  executable_->Run({.valid_rows = valid});
  return executable_->Output(logits_);
}

}  // namespace carole::train
