#include "src/train/step_losses.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "src/backend/arena_math.h"
#include "src/core/error.h"

namespace carole::train {

// Its loss comes after those of auxiliary heads.
ValueId StepLosses::LogitsOf(const Graph& graph) {
  for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node) {
    if (node->kind == OpKind::kSoftmaxCrossEntropy) return node->inputs[0];
  }
  throw InternalError("[train] the graph has no loss over classes");
}

StepLosses::StepLosses(const Graph& graph, const Executable& executable, const Backend& backend,
                       collectives::Communicator& communicator)
    : graph_(graph),
      executable_(executable),
      backend_(backend),
      communicator_(communicator),
      logits_(LogitsOf(graph)),
      num_classes_(graph.shape(logits_)[1]),
      message_(graph.losses().size() + 3) {
  if (!backend.on_host()) device_ = backend.Allocate(graph.losses().size() * sizeof(float));
}

void StepLosses::BeginStep() {
  sums_.Clear();
  local_.clear();
  correct_ = 0;
  is_collected_ = false;
}

void StepLosses::BeginPiece(const io::Batch& piece, double scale) {
  piece_ = piece;
  scale_ = scale;
}

std::vector<double> StepLosses::Read() {
  std::vector<double> losses;
  for (const auto& [name, value] : graph_.losses())
    losses.push_back(executable_.Output(value)[0] / scale_);
  const std::vector<double> logits = executable_.Output(logits_);
  for (int64_t row = 0; row < piece_.valid; ++row) {
    const auto first = logits.begin() + row * num_classes_;
    correct_ += std::max_element(first, first + num_classes_) - first == piece_.labels[row];
  }
  return losses;
}

void StepLosses::EndPiece() {
  std::vector<double> losses = Read();
  sums_.Add(losses);
}

double StepLosses::Finish() {
  if (local_.empty()) {
    local_ = Read();
    sums_.Finish(0, local_);
  }
  return std::accumulate(local_.begin(), local_.end(), 0.0);
}

void StepLosses::Send(const Message& message) {
  const auto global_valid = static_cast<double>(message.global_valid);
  size_t i = 0;
  for (double loss : local_) message_[i++] = loss * message.share;
  message_[i++] = correct_ / global_valid;
  message_[i++] = message.ask_stop;
  message_[i] = message.ask_save;
  in_flight_ =
      communicator_.AllReduceAsync(std::span(message_), {.what = "losses", .step = message.step});
}

StepLosses::Sums StepLosses::Wait() {
  std::exchange(in_flight_, nullptr)->Wait();
  const size_t num_losses = message_.size() - 3;
  return {.losses = std::span(message_).first(num_losses),
          .accuracy = message_[num_losses],
          .stop = message_[num_losses + 1] > 0,
          .save = message_[num_losses + 2] > 0};
}

void StepLosses::Collect() {
  const ArenaMath& math = *backend_.arena_math();
  auto* sum = reinterpret_cast<float*>(device_.get());
  for (const auto& [name, value] : graph_.losses()) {
    const Tensor loss = executable_.OutputMemory(value);
    if (is_collected_) {
      math.Add(sum, loss.as<float>(), 1);
    } else {
      math.Copy(reinterpret_cast<std::byte*>(sum), loss.data, sizeof(float));
    }
    ++sum;
  }
  is_collected_ = true;
}

void StepLosses::Inspect(optim::Optimizer& optimizer, int64_t step) {
  const size_t count = graph_.losses().size();
  communicator_.AllReduce(std::span(reinterpret_cast<float*>(device_.get()), count),
                          {.what = "losses on devices", .step = step});
  for (size_t i = 0; i < count; ++i)
    optimizer.InspectLoss({.data = device_.get() + i * sizeof(float), .shape = {}});
}

}  // namespace carole::train
