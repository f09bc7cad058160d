// How good predictions are: exact counts and sums, so that any number of ranks gives the same
// figures.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "collectives/communicator.h"

namespace carole::train {

// Counts that are not 0, by label * K + prediction: K^2 of them have no room where K is 20,000.
using ConfusionCounts = std::map<int64_t, int64_t>;
// Samples whose label this is.
int64_t SamplesOf(const ConfusionCounts& counts, int64_t label, int64_t num_classes);

class Metrics {
 public:
  explicit Metrics(int64_t num_classes);

  // Counts the first `valid` rows. logits (N,K) row-major, labels (N). The prediction is the
  // largest logit, the first of equal ones; a label is among the five highest when fewer than five
  // logits are larger than its own. Throws DataError for a label out of range.
  void Add(std::span<const double> logits, std::span<const int32_t> labels, int64_t valid);

  // Sums over all ranks. Collective, once.
  void SumOverRanks(collectives::Communicator& communicator);

  int64_t num_classes() const { return num_classes_; }
  int64_t samples() const { return static_cast<int64_t>(totals_[kSamples]); }
  double accuracy() const;  // shares from 0 to 1; 0 without samples
  double recall_5() const;
  // The mean softmax cross-entropy: the data's part alone of what training minimizes, without
  // weight decay, label smoothing and auxiliary logits. Not finite where a sample's is not.
  double loss() const;
  // The three above, by their tags in event files.
  std::array<std::pair<const char*, double>, 3> Scalars() const;
  int64_t samples_of(int64_t label) const;
  double accuracy_of(int64_t label) const;
  int64_t confusion(int64_t label, int64_t prediction) const;
  const ConfusionCounts& confusion() const { return confusion_; }

  // "eval/Accuracy 0.9167" and so on for each of Scalars().
  std::string Summary(std::string_view separator) const;
  // Scalars(), each class's accuracy, and the confusion matrix (rows: labels, columns: predictions)
  // unless there are too many classes for a screen. Names may be fewer than classes.
  std::string Report(std::span<const std::string> class_names) const;

 private:
  std::string ClassTable(std::span<const std::string> class_names) const;
  std::string ConfusionTable(std::span<const std::string> class_names) const;

  void GatherConfusion(collectives::Communicator& communicator);

  // Samples, right ones, labels among the five highest, the sum of losses.
  enum Total : size_t { kSamples, kRight, kInTopFive, kLoss, kNumTotals };

  int64_t num_classes_;
  std::array<double, kNumTotals> totals_{};  // whole numbers: doubles add them exactly up to 2^53
  ConfusionCounts confusion_;
};

}  // namespace carole::train
