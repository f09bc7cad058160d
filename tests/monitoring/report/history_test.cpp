#include "src/monitoring/report/history.h"

#include <gmock/gmock.h>

#include <cmath>

#include "src/core/error.h"

namespace carole::monitoring {
namespace {

Row StepRow(int64_t step, double loss = 1) {
  Row row{};
  row[kStep] = static_cast<double>(step);
  row[kSteps] = 1;
  row[kImages] = 32;
  row[kTotalLoss] = loss;
  return row;
}

History Steps(int64_t first, int64_t last) {
  History history;
  for (int64_t step = first; step <= last; ++step)
    history.AddStep(StepRow(step, static_cast<double>(step)));
  return history;
}

TEST(History, StaysBoundedAndKeepsAllSums) {
  const int64_t steps = 123'457;
  const History history = Steps(1, steps);
  EXPECT_LE(history.rows().size(), History::kMaxRows);
  EXPECT_GE(history.rows().size(), History::kMaxRows / 2 - 1);
  EXPECT_EQ(history.Total(kSteps), steps);
  EXPECT_EQ(history.Total(kImages), 32.0 * steps);
  double before = 0;
  for (const Row& row : history.rows()) {
    EXPECT_EQ(row[kStep], before + row[kSteps]);
    EXPECT_DOUBLE_EQ(Mean(row, kTotalLoss),
                     (before + 1 + row[kStep]) / 2);  // mean over the steps of the row
    before = row[kStep];
  }
}

TEST(History, ConvertsToJsonAndBack) {
  History history = Steps(1, 2500);
  Row odd = StepRow(2501, NAN);
  history.AddStep(odd);
  history.AddEvaluation({.step = 2000, .accuracy = 0.5, .recall_5 = 0.75, .loss = 1.25});
  history.SetConfusion({.step = 2000, .num_classes = 2, .counts = {{0, 5}, {2, 1}, {3, 4}}});
  const History back = History::FromJson(history.ToJson());
  EXPECT_EQ(back.ToJson(), history.ToJson());
  EXPECT_TRUE(std::isnan(back.rows().back()[kTotalLoss]));
  EXPECT_EQ(back.confusion().at(1, 1), 4);
  EXPECT_EQ(back.evaluations().at(0).recall_5, 0.75);
  EXPECT_EQ(back.evaluations().at(0).loss, 1.25);
}

TEST(History, ReadsEvaluationsOfOlderReports) {
  std::string text = History().ToJson();
  const std::string none = "\"evaluations\":[";
  text.insert(text.find(none) + none.size(), "[2000,0.5,0.75]");
  const EvaluationPoint point = History::FromJson(text).evaluations().at(0);
  EXPECT_EQ(point.recall_5, 0.75);
  EXPECT_TRUE(std::isnan(point.loss));
}

// Large integers: a step of a long run, and a cell index with ImageNet's 21,841 classes.
TEST(History, KeepsLargeIntegersExact) {
  constexpr int64_t kClasses = 21841, kCell = kClasses * kClasses - 1;
  History history;
  history.AddStep({3'000'000'001});
  history.SetConfusion({.step = 1, .num_classes = kClasses, .counts = {{kCell, 7}}});
  const History read = History::FromJson(history.ToJson());
  EXPECT_EQ(read.rows().at(0)[kStep], 3'000'000'001);
  EXPECT_EQ(read.confusion().at(kClasses - 1, kClasses - 1), 7);
}

TEST(History, RejectsOtherText) {
  const std::string good = Steps(1, 3).ToJson();
  EXPECT_NO_THROW(History::FromJson(good));
  std::vector<std::string> bad = {"", "{}", "[]", good.substr(0, good.size() - 1)};
  const auto replace = [&](const std::string& what, const std::string& with) {
    std::string text = good;
    const size_t position = text.find(what);
    ASSERT_NE(position, std::string::npos) << what;
    bad.push_back(text.replace(position, what.size(), with));
  };
  replace("\"version\":1", "\"version\":2");
  replace("\"steps_per_row\":1", "\"steps_per_row\":0");
  replace("[1,1,", "[1,");
  replace("[1,1,", "[1,\"x\",");
  replace("\"classes\":0", "\"classes\":2000000000");
  replace("\"cells\":[", "\"cells\":[[0,1]");
  for (const std::string& text : bad) EXPECT_THROW(History::FromJson(text), DataError) << text;
}

TEST(History, RewindRemovesLaterSteps) {
  History history = Steps(1, 10);
  history.AddEvaluation({.step = 4});
  history.AddEvaluation({.step = 8});
  history.SetConfusion({.step = 8, .num_classes = 1, .counts = {{0, 1}}});
  history.RewindTo(7);
  EXPECT_EQ(history.rows().size(), 7U);
  EXPECT_EQ(history.evaluations().size(), 1U);
  EXPECT_EQ(history.confusion().num_classes, 0);
}

}  // namespace
}  // namespace carole::monitoring
