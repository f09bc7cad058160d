// The history of a run: its curves over all restarts, in bounded memory.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/train/evaluation/metrics.h"

namespace carole::monitoring {

// The columns of a row. A row describes one step or several consecutive steps. For several steps,
// all columns but kStep hold sums; a mean is sum / kSteps.
enum Column : uint8_t {
  kStep,  // number of updates after the (last) step; not summed
  kSteps,
  kImages,
  kSeconds,      // of the steps
  kEvalSeconds,  // of evaluations after the steps
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
  kExposedMs,  // exposed communication: waiting for reductions
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

// The confusion matrix of the last evaluation: rows are labels, columns are predictions.
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
  // When there are this many rows, each two adjacent rows are merged. So a long run has between
  // kMaxRows / 2 and kMaxRows rows.
  static constexpr size_t kMaxRows = 1000;

  // Adds a step. Steps must be added in ascending order.
  void AddStep(const Row& row);
  // Adds seconds to the last row. Does nothing if there are no rows.
  void AddSeconds(Column column, double seconds);
  // Adds an evaluation. It replaces an earlier one at the same step.
  void AddEvaluation(const EvaluationPoint& point);
  void SetConfusion(Confusion confusion) { confusion_ = std::move(confusion); }

  // Removes everything after this step, as a resumed run repeats it.
  void RewindTo(int64_t step);

  const std::vector<Row>& rows() const { return rows_; }
  const std::vector<EvaluationPoint>& evaluations() const { return evaluations_; }
  const Confusion& confusion() const { return confusion_; }
  // Returns the sum of a column over all rows.
  double Total(Column column) const;

  std::string ToJson() const;
  // Converts back. Throws DataError if the text does not come from ToJson().
  static History FromJson(std::string_view text);

 private:
  std::vector<Row> rows_;
  std::vector<EvaluationPoint> evaluations_;
  Confusion confusion_;
  int64_t steps_per_row_ = 1;
};

// Returns the mean of a column over the steps of a row.
inline double Mean(const Row& row, Column column) { return row[column] / row[kSteps]; }

}  // namespace carole::monitoring
