// Accuracy, loss and confusion matrix of an evaluation. Counts and sums are exact, so any number of
// ranks gives the same results.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/communicator.h"

namespace carole::train {

// The nonzero cells of a confusion matrix of K classes: key label * K + prediction, value count.
// A dense matrix of K^2 cells would not fit into memory for 20,000 classes.
using ConfusionCounts = std::map<int64_t, int64_t>;
// Returns the number of samples that have this label (the sum of the label's row).
int64_t SamplesOf(const ConfusionCounts& counts, int64_t label, int64_t num_classes);

// Accumulates the metrics of one evaluation. Each rank adds its own batches; one SumOverRanks() at
// the end makes the totals the same on every rank.
class Metrics {
 public:
  explicit Metrics(int64_t num_classes);

  // Counts the first `valid` rows of a batch. logits (N,K) is row-major, labels is (N).
  // The prediction is the class with the largest logit; of equal logits, the first. A label is in
  // the top five if fewer than five logits are larger than its own.
  // Throws DataError if a label is out of range.
  void Add(std::span<const double> logits, std::span<const int32_t> labels, int64_t valid);

  // Sums the counts over all ranks. Collective; call it once, after the last Add().
  void SumOverRanks(collectives::Communicator& communicator);

  int64_t num_classes() const { return num_classes_; }
  int64_t samples() const { return static_cast<int64_t>(totals_[kSamples]); }
  // Top-1 and top-5 accuracy, from 0 to 1; 0 if there are no samples.
  double accuracy() const;
  double recall_5() const;
  // Mean softmax cross-entropy. This is the data loss of training without label smoothing and
  // without auxiliary logits; weight decay is not part of it either. Not finite if the loss of some
  // sample is not finite.
  double loss() const;
  // The values above with their tags in TensorBoard event files. The top-5 accuracy is always 1
  // with five classes or fewer, so it is left out then.
  std::vector<std::pair<const char*, double>> Scalars() const;
  int64_t samples_of(int64_t label) const;
  double accuracy_of(int64_t label) const;
  int64_t confusion(int64_t label, int64_t prediction) const;
  const ConfusionCounts& confusion() const { return confusion_; }

  // "eval/Accuracy 0.9167" and so on for each of Scalars().
  std::string Summary(std::string_view separator) const;
  // Text for a terminal: Scalars(), the accuracy of each class, and the confusion matrix (rows:
  // labels, columns: predictions). The matrix is left out if there are too many classes for a
  // screen. There may be fewer names than classes.
  std::string Report(std::span<const std::string> class_names) const;

 private:
  std::string ClassTable(std::span<const std::string> class_names) const;
  std::string ConfusionTable(std::span<const std::string> class_names) const;

  void GatherConfusion(collectives::Communicator& communicator);

  // Indexes into totals_: samples, correct predictions, labels in the top five, sum of losses.
  enum Total : size_t { kSamples, kCorrect, kTopFive, kLoss, kNumTotals };

  int64_t num_classes_;
  std::array<double, kNumTotals> totals_{};  // integers, so doubles add them exactly up to 2^53
  ConfusionCounts confusion_;
};

}  // namespace carole::train
