// How good predictions are: exact counts, so that any number of ranks gives the same figures.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.h"

namespace carole::train {

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
  int64_t samples() const;
  double accuracy() const;  // shares from 0 to 1; 0 without samples
  double recall_5() const;
  int64_t samples_of(int64_t label) const;
  double accuracy_of(int64_t label) const;
  int64_t confusion(int64_t label, int64_t prediction) const;

  // Accuracy and recall, each class's accuracy, and the confusion matrix (rows: labels, columns:
  // predictions) unless there are too many classes for a screen. Names may be fewer than classes.
  std::string Report(std::span<const std::string> class_names) const;

 private:
  std::string ClassTable(std::span<const std::string> class_names) const;
  std::string ConfusionTable(std::span<const std::string> class_names) const;

  int64_t num_classes_;
  // confusion (K,K), then the number of labels among the five highest; doubles, which count exactly
  // up to 2^53 and can be all-reduced.
  std::vector<double> counts_;
};

}  // namespace carole::train
