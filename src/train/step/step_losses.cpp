#include "src/train/step/step_losses.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "src/core/check.h"
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
    : executable_(executable),
      backend_(backend),
      communicator_(communicator),
      num_classes_(graph.shape(LogitsOf(graph))[1]),
      message_(graph.losses().size() + 3) {
  for (const auto& [name, value] : graph.losses()) values_.push_back(value);
  values_.push_back(LogitsOf(graph));
}

void StepLosses::BeginStep() {
  num_pieces_ = 0;
  is_open_ = false;
  local_.clear();
  correct_ = 0;
}

void StepLosses::BeginPiece(const io::Batch& piece, double scale) {
  if (num_pieces_ == pieces_.size()) pieces_.emplace_back();
  Piece& next = pieces_[num_pieces_++];
  next.batch = piece;
  next.scale = scale;
  is_open_ = true;
}

void StepLosses::CountCorrect(const Piece& piece, std::span<const double> logits) {
  for (int64_t row = 0; row < piece.batch.valid; ++row) {
    const auto first = logits.begin() + row * num_classes_;
    correct_ += std::max_element(first, first + num_classes_) - first == piece.batch.labels[row];
  }
}

void StepLosses::ReadHost(Piece& piece) {
  piece.losses.clear();
  for (size_t i = 0; i + 1 < values_.size(); ++i)
    piece.losses.push_back(executable_.Output(values_[i])[0] / piece.scale);
  CountCorrect(piece, executable_.Output(values_.back()));
}

// What a backend writes for the host is fp32 and plain.
void StepLosses::ReadDevice(Piece& piece) {
  const auto floats = [&](size_t i) {
    return reinterpret_cast<const float*>(piece.downloads[i]->Wait());
  };
  piece.losses.clear();
  for (size_t i = 0; i + 1 < values_.size(); ++i)
    piece.losses.push_back(floats(i)[0] / piece.scale);
  const float* logits = floats(values_.size() - 1);
  const int64_t count = piece.batch.valid * num_classes_;
  CountCorrect(piece, std::vector<double>(logits, logits + count));
}

void StepLosses::EndPiece() {
  if (!std::exchange(is_open_, false)) return;
  Piece& piece = pieces_[num_pieces_ - 1];
  if (backend_.on_host()) return ReadHost(piece);
  piece.downloads.resize(values_.size());
  for (size_t i = 0; i < values_.size(); ++i)
    executable_.BeginOutput(values_[i], piece.downloads[i]);
}

double StepLosses::Finish() {
  EndPiece();
  if (local_.empty()) {
    sums_.Clear();
    for (size_t i = 0; i < num_pieces_; ++i) {
      if (!backend_.on_host()) ReadDevice(pieces_[i]);
      if (i + 1 < num_pieces_) sums_.Add(pieces_[i].losses);
    }
    local_ = pieces_[num_pieces_ - 1].losses;
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

}  // namespace carole::train
