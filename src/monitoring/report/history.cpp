#include "src/monitoring/report/history.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/core/error.h"

namespace carole::monitoring {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 1;
constexpr int64_t kMaxClasses = int64_t{1} << 30;  // the square must fit into int64_t

// Merges the row of the following steps into a row.
void MergeRows(Row& into, const Row& next) {
  for (int column = kStep + 1; column < kNumColumns; ++column) into[column] += next[column];
  into[kStep] = next[kStep];
}

// JSON has no NaN; null stands for it.
double Number(const Json& json) {
  return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
}

std::string Text(double value) {
  return std::isfinite(value) ? fmt::format("{:.7g}", value) : "null";
}

std::string Text(const Row& row, int column) {
  return column == kStep ? fmt::format("{:.0f}", row[kStep]) : Text(row[column]);
}

// Reports of older versions have no loss.
EvaluationPoint ReadEvaluation(const Json& p) {
  return {.step = p.at(0),
          .accuracy = Number(p.at(1)),
          .recall_5 = Number(p.at(2)),
          .loss = Number(p.size() > 3 ? p.at(3) : Json())};
}

Confusion ReadConfusion(const Json& json) {
  Confusion confusion{.step = json.at("step"), .num_classes = json.at("classes")};
  if (confusion.num_classes < 0 || confusion.num_classes > kMaxClasses)
    throw DataError("the confusion matrix has too many classes");
  for (const Json& cell : json.at("cells")) {
    const int64_t place = cell.at(0);
    if (place < 0 || place >= confusion.num_classes * confusion.num_classes)
      throw DataError("a cell is outside the confusion matrix");
    confusion.counts[place] = cell.at(1);
  }
  return confusion;
}

}  // namespace

Confusion Confusion::Of(const train::Metrics& metrics, int64_t step) {
  return {.step = step, .num_classes = metrics.num_classes(), .counts = metrics.confusion()};
}

void History::AddStep(const Row& row) {
  if (!rows_.empty() && rows_.back()[kSteps] < static_cast<double>(steps_per_row_)) {
    MergeRows(rows_.back(), row);
    return;
  }
  if (rows_.size() == kMaxRows) {
    steps_per_row_ *= 2;
    for (size_t i = 0; i < kMaxRows / 2; ++i) {
      rows_[i] = rows_[2 * i];
      MergeRows(rows_[i], rows_[2 * i + 1]);
    }
    rows_.resize(kMaxRows / 2);
  }
  rows_.push_back(row);
}

void History::AddSeconds(Column column, double seconds) {
  if (!rows_.empty()) rows_.back()[column] += seconds;
}

void History::AddEvaluation(const EvaluationPoint& point) {
  if (!evaluations_.empty() && evaluations_.back().step == point.step) evaluations_.pop_back();
  if (evaluations_.size() == kMaxRows) {  // drop every other one
    for (size_t i = 0; i < kMaxRows / 2; ++i) evaluations_[i] = evaluations_[2 * i + 1];
    evaluations_.resize(kMaxRows / 2);
  }
  evaluations_.push_back(point);
}

void History::RewindTo(int64_t step) {
  std::erase_if(rows_, [&](const Row& row) { return row[kStep] > static_cast<double>(step); });
  std::erase_if(evaluations_, [&](const EvaluationPoint& p) { return p.step > step; });
  if (confusion_.step > step) confusion_ = {};
}

double History::Total(Column column) const {
  double sum = 0;
  for (const Row& row : rows_) sum += row[column];
  return sum;
}

std::string History::ToJson() const {
  std::string text =
      fmt::format(R"({{"version":{},"steps_per_row":{},"rows":[)", kVersion, steps_per_row_);
  for (const Row& row : rows_) {
    text += &row == rows_.data() ? "\n[" : ",\n[";
    for (int column = 0; column < kNumColumns; ++column)
      text += (column == 0 ? "" : ",") + Text(row, column);
    text += ']';
  }
  text += "],\n\"evaluations\":[";
  for (const EvaluationPoint& p : evaluations_)
    text += fmt::format("{}[{},{},{},{}]", &p == evaluations_.data() ? "" : ",", p.step,
                        Text(p.accuracy), Text(p.recall_5), Text(p.loss));
  text += fmt::format("],\n\"confusion\":{{\"step\":{},\"classes\":{},\"cells\":[", confusion_.step,
                      confusion_.num_classes);
  const char* comma = "";
  for (const auto& [cell, count] : confusion_.counts)
    text += fmt::format("{}[{},{}]", std::exchange(comma, ","), cell, count);
  return text + "]}}";
}

History History::FromJson(std::string_view text) {
  try {
    const Json json = Json::parse(text);
    if (json.at("version") != kVersion) throw DataError("unknown version");
    History history;
    history.steps_per_row_ = json.at("steps_per_row");
    for (const Json& values : json.at("rows")) {
      if (values.size() != kNumColumns) throw DataError("a row has the wrong length");
      Row row;
      for (int column = 0; column < kNumColumns; ++column) row[column] = Number(values[column]);
      history.rows_.push_back(row);
    }
    for (const Json& p : json.at("evaluations")) history.evaluations_.push_back(ReadEvaluation(p));
    history.confusion_ = ReadConfusion(json.at("confusion"));
    if (history.rows_.size() > kMaxRows || history.steps_per_row_ < 1)
      throw DataError("too many rows");
    return history;
  } catch (const std::exception& error) {
    throw DataError(fmt::format("[watch] history of a run: {}", error.what()));
  }
}

}  // namespace carole::monitoring
