#include "src/train/evaluation/inference.h"

#include <utility>

#include "src/core/check.h"
#include "src/graph/plan/compiler.h"
#include "src/graph/precision.h"
#include "src/graph/rewrites.h"
#include "src/train/step/micro_batch.h"

namespace carole::train {

Inference::Inference(std::unique_ptr<Graph> graph, ValueId logits, const Backend& backend,
                     VariableStore* share)
    : graph_(std::move(graph)), logits_(logits), store_(share) {
  graph_->MarkOutput(logits_);
  Fuse(*graph_, backend);
  StoreActivationsAs(backend.activation_dtype(), *graph_);
  executable_ =
      std::make_unique<Executable>(Compile(*graph_, backend, {.share_layouts_of = share}));
  if (store_ == nullptr) {
    own_store_ = executable_->MakeStore();
    store_ = own_store_.get();
  }
}

void Inference::Bind() {
  if (!is_bound_) executable_->Bind(*store_);
  is_bound_ = true;
}

void Inference::Begin(std::span<const float> images, int64_t valid) {
  CAROLE_CHECK(num_in_flight() < kMaxInFlight, "{} batches are in flight", num_in_flight());
  Bind();
  OutputDownload& batch = Slot(begun_++);
  CopyImages(images, *executable_);
  executable_->Run({.valid_rows = valid});
  batch.Begin(*executable_, logits_);
}

std::vector<double> Inference::End() {
  CAROLE_CHECK(num_in_flight() > 0, "no batch is in flight");
  return Slot(ended_++).Wait();
}

std::vector<double> Inference::Run(std::span<const float> images, int64_t valid) {
  Begin(images, valid);
  return End();
}

}  // namespace carole::train
