#include "src/train/step/step_losses.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "src/backend/ops/softmax.h"
#include "src/core/check.h"
#include "src/core/error.h"
#include "src/graph/quantization_names.h"

namespace carole::train {
namespace {

template <typename T>
int64_t Largest(std::span<const T> values) {
  return std::ranges::max_element(values) - values.begin();
}

// The label of a row; of soft labels, the most probable one.
int64_t LabelOf(const io::Batch& batch, int64_t row) {
  if (batch.soft_labels.empty()) return batch.labels[row];
  const size_t classes = batch.soft_labels.size() / batch.labels.size();
  return Largest(batch.soft_labels.subspan(static_cast<size_t>(row) * classes, classes));
}

}  // namespace

// The loss of the main head comes after those of auxiliary heads.
ValueId StepLosses::LogitsOf(const Graph& graph) {
  for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node) {
    if (node->kind == op::kSoftmaxCrossEntropy) return node->inputs[0];
  }
  throw InternalError("[train] the graph has no loss over classes");
}

StepLosses::StepLosses(const Graph& graph, const Executable& executable,
                       collectives::Communicator& communicator)
    : executable_(executable),
      communicator_(communicator),
      num_classes_(graph.shape(LogitsOf(graph))[1]),
      message_(graph.losses().size() + 3) {
  for (const auto& [name, value] : graph.losses()) values_.push_back(value);
  regularization_ = static_cast<size_t>(
      std::ranges::find(graph.losses(), kL2Loss, &std::pair<std::string, ValueId>::first) -
      graph.losses().begin());
  values_.push_back(LogitsOf(graph));
}

void StepLosses::BeginStep() {
  num_micro_batches_ = 0;
  is_open_ = false;
  local_losses_.clear();
  correct_ = 0;
}

void StepLosses::BeginMicroBatch(const io::Batch& micro_batch, double scale) {
  if (num_micro_batches_ == micro_batches_.size()) micro_batches_.emplace_back();
  MicroBatchLosses& next = micro_batches_[num_micro_batches_++];
  next.batch = micro_batch;
  next.scale = scale;
  is_open_ = true;
}

void StepLosses::CountCorrect(const MicroBatchLosses& micro_batch, std::span<const double> logits) {
  for (int64_t row = 0; row < micro_batch.batch.valid; ++row) {
    const std::span scores =
        logits.subspan(static_cast<size_t>(row * num_classes_), static_cast<size_t>(num_classes_));
    correct_ += Largest(scores) == LabelOf(micro_batch.batch, row);
  }
}

void StepLosses::Read(MicroBatchLosses& micro_batch) {
  micro_batch.losses.clear();
  for (size_t i = 0; i + 1 < values_.size(); ++i)
    micro_batch.losses.push_back(micro_batch.downloads[i].Wait()[0] / micro_batch.scale);
  CountCorrect(micro_batch, micro_batch.downloads.back().Wait());
}

void StepLosses::EndMicroBatch() {
  if (!std::exchange(is_open_, false)) return;
  MicroBatchLosses& micro_batch = micro_batches_[num_micro_batches_ - 1];
  micro_batch.downloads.resize(values_.size());
  for (size_t i = 0; i < values_.size(); ++i)
    micro_batch.downloads[i].Begin(executable_, values_[i]);
}

double StepLosses::FinishLocal() {
  EndMicroBatch();
  if (local_losses_.empty()) {
    sum_.Clear();
    for (size_t i = 0; i < num_micro_batches_; ++i) {
      Read(micro_batches_[i]);
      if (i + 1 < num_micro_batches_) sum_.Add(micro_batches_[i].losses);
    }
    local_losses_ = micro_batches_[num_micro_batches_ - 1].losses;
    sum_.Finish(0, local_losses_);
  }
  return std::accumulate(local_losses_.begin(), local_losses_.end(), 0.0);
}

void StepLosses::BeginAllReduce(const Message& message) {
  const auto global_valid = static_cast<double>(message.global_valid);
  size_t i = 0;
  for (double loss : local_losses_) message_[i++] = loss * message.loss_weight;
  message_[i++] = correct_ / global_valid;
  message_[i++] = message.request_stop;
  message_[i] = message.request_save;
  in_flight_ =
      communicator_.AllReduceAsync(std::span(message_), {.what = "losses", .step = message.step});
}

StepLosses::GlobalLosses StepLosses::WaitForAllReduce() {
  std::exchange(in_flight_, nullptr)->Wait();
  const size_t num_losses = message_.size() - 3;
  return {.losses = std::span(message_).first(num_losses),
          .regularization = regularization_ < num_losses ? message_[regularization_] : 0,
          .accuracy = message_[num_losses],
          .stop = message_[num_losses + 1] > 0,
          .save = message_[num_losses + 2] > 0};
}

}  // namespace carole::train
