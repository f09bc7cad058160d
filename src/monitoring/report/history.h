// The curves of a run, in bounded memory, over all its restarts.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/train/evaluation/metrics.h"

namespace carole::monitoring {

// What is known of a step; of several, the sums (a mean is sum / kSteps).
enum Column : uint8_t {
  kStep,  // updates done, the last one included; not summed
  kSteps,
  kImages,
  kSeconds,      // of steps
  kEvalSeconds,  // behind them
  kSaveSeconds,
  kTotalLoss,
  kDataLoss,
  kRegularization,
  kAccuracy,  // of the training batches, 0 to 1
  kLearningRate,
  kGradientNorm,
  kInputMs,
  kForwardMs,
  kBackwardMs,
  kExposedMs,  // waiting for sums
  kOptimizerMs,
  kNumColumns
};
using Row = std::array<double, kNumColumns>;

struct EvaluationPoint {
  int64_t step = 0;
  double accuracy = 0;
  double recall_5 = 0;
  double loss = 0;
};

// Counts of the last evaluation: rows are labels, columns predictions.
struct Confusion {
  int64_t step = 0;
  int64_t num_classes = 0;  // 0: none
  train::ConfusionCounts counts;

  static Confusion Of(const train::Metrics& metrics, int64_t step);
  int64_t at(int64_t label, int64_t prediction) const {
    const auto cell = counts.find(label * num_classes + prediction);
    return cell == counts.end() ? 0 : cell->second;
  }
};

class History {
 public:
  // Neighbors are joined when there are so many rows, so a curve of a long run has between half
  // and all of them.
  static constexpr size_t kMaxRows = 1000;

  // In the order of steps.
  void AddStep(const Row& row);
  // To the last step; nothing without one.
  void AddSeconds(Column column, double seconds);
  void AddEvaluation(const EvaluationPoint& point);  // the last of a step stands
  void SetConfusion(Confusion confusion) { confusion_ = std::move(confusion); }

  // What came after this step is forgotten: a run goes on from there.
  void RewindTo(int64_t step);

  const std::vector<Row>& rows() const { return rows_; }
  const std::vector<EvaluationPoint>& evaluations() const { return evaluations_; }
  const Confusion& confusion() const { return confusion_; }
  double Total(Column column) const;

  std::string ToJson() const;
  // Throws DataError when the text is not ToJson()'s.
  static History FromJson(std::string_view text);

 private:
  std::vector<Row> rows_;
  std::vector<EvaluationPoint> evaluations_;
  Confusion confusion_;
  int64_t steps_per_row_ = 1;
};

// The column's mean over the row's steps.
inline double Mean(const Row& row, Column column) { return row[column] / row[kSteps]; }

}  // namespace carole::monitoring
