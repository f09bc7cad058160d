#include "src/train/evaluation/metrics.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "src/core/error.h"
#include "src/train/evaluation/evaluate.h"
#include "tests/train/training.h"

namespace carole::train {
namespace {

using carole::testing::FormulaSource;
using carole::testing::FullCommunicator;
using carole::testing::RunRanks;
using carole::testing::SmallNet;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(MetricsTest, CountsPredictionsAndTies) {
  Metrics m(6);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> logits = {
      0, 3, 1,   3, 2,   2,   // two equal maxima: the first is the prediction
      5, 4, 3,   2, 1,   1,   // label 5 ties with the fifth: in the top five
      5, 4, 3,   2, 1.5, 1,   // label 5 is the sixth: not in the top five
      0, 0, nan, 0, 0,   0,   // a NaN is not in the top five
      9, 9, 9,   9, 9,   9};  // not valid
  const std::vector<int32_t> labels = {3, 5, 5, 2, 0};
  m.Add(logits, labels, 4);
  EXPECT_EQ(m.samples(), 4);
  EXPECT_EQ(m.confusion(3, 1), 1);
  EXPECT_EQ(m.confusion(5, 0), 2);
  EXPECT_EQ(m.samples_of(5), 2);
  EXPECT_EQ(m.accuracy(), 0);
  EXPECT_EQ(m.recall_5(), 0.5);
  EXPECT_TRUE(std::isnan(m.loss()));  // as the loss of one sample is NaN
}

TEST(MetricsTest, LossIsTheMeanCrossEntropy) {
  Metrics m(2);
  const std::vector<double> logits = {0, 0, 1000, 0, 1000, 0, 7, 9};
  m.Add(logits, std::vector<int32_t>{0, 1, 0, 0}, 3);  // the last one is not valid
  EXPECT_NEAR(m.loss(), (std::log(2) + 1000 + 0) / 3, 1e-6);
  EXPECT_EQ(Metrics(2).loss(), 0);
}

TEST(MetricsTest, LossDoesNotDependOnTheOrderOfSamples) {
  constexpr int64_t kSamples = 1000, kClasses = 7;
  const auto logits = golden::FormulaInput("logits", kSamples * kClasses);
  Metrics forwards(kClasses), backwards(kClasses);
  const auto add = [&](int64_t sample, Metrics& m) {
    const auto row = logits.begin() + sample * kClasses;
    m.Add(std::vector<double>(row, row + kClasses),
          std::vector<int32_t>{static_cast<int32_t>(sample % kClasses)}, 1);
  };
  for (int64_t i = 0; i < kSamples; ++i) {
    add(i, forwards);
    add(kSamples - 1 - i, backwards);
  }
  EXPECT_GT(forwards.loss(), 0.1);
  EXPECT_EQ(forwards.loss(), backwards.loss());
}

TEST(MetricsTest, ReportIsAligned) {
  Metrics m(3);
  std::vector<double> logits;
  std::vector<int32_t> labels;
  for (int i = 0; i < 12; ++i) {
    const int label = i % 2, prediction = i == 1 ? 2 : label;
    for (int k = 0; k < 3; ++k) logits.push_back(k == prediction);
    labels.push_back(label);
  }
  m.Add(logits, labels, 12);
  const std::vector<std::string> names = {"cat", "house finch"};
  EXPECT_EQ(m.Report(names),
            "eval/Accuracy 0.9167\n"
            "eval/Loss 0.6348\n"
            "(12 samples)\n"
            "\n"
            "Per class\n"
            "  cat          1.0000  (6 of 6)\n"
            "  house finch  0.8333  (5 of 6)\n"
            "\n"
            "Confusion matrix (rows: labels, columns: predictions by number)\n"
            "                  0  1  2\n"
            "  cat          0  6  0  0\n"
            "  house finch  1  0  5  1\n"
            "  class 2      2  0  0  0\n");
}

TEST(MetricsTest, ShowsTheTopFiveOfMoreThanFiveClasses) {
  EXPECT_THAT(Metrics(6).Summary(", "), HasSubstr("eval/Recall_5"));
  EXPECT_THAT(Metrics(5).Summary(", "), ::testing::Not(HasSubstr("eval/Recall_5")));
}

TEST(MetricsTest, NamesALabelOutOfRange) {
  Metrics m(2);
  const std::vector<double> logits = {0, 1};
  const std::vector<int32_t> labels = {2};
  EXPECT_THAT([&] { m.Add(logits, labels, 1); },
              ThrowsMessage<DataError>(HasSubstr("got 2, want 0 to 1")));
}

TEST(EvaluateTest, CountsEverySampleOnceOnAnyNumberOfRanks) {
  std::string report;
  double loss = 0;
  for (int num_ranks : {1, 2, 3}) {
    RunRanks(num_ranks, [&](FullCommunicator& c) {
      const auto backend = MakeReferenceBackend(1);
      SmallNet net(4, true, DType::kF32, /*training=*/false);
      Inference inference(std::move(net.graph), net.logits, *backend);
      inference.store().Initialize(5);
      FormulaSource source({.rank = c.rank(), .size = c.size(), .endless = false});
      const Metrics metrics = *Evaluate(inference, source, c, c);
      EXPECT_EQ(metrics.samples(), 22);
      if (num_ranks == 1) {
        report = metrics.Report({});
        loss = metrics.loss();
      }
      EXPECT_EQ(metrics.Report({}), report) << num_ranks << " ranks";
      EXPECT_EQ(metrics.loss(), loss) << num_ranks << " ranks";
    });
  }
}

// The ranks have 0, 1 and 2 samples of one class of ImageNet's 21,841.
TEST(MetricsTest, SumsConfusionCellsOverRanks) {
  RunRanks(3, [](FullCommunicator& c) {
    constexpr int64_t kClasses = 21841;
    const int32_t label = kClasses - 1;
    Metrics none(kClasses), some(kClasses);
    none.SumOverRanks(c);
    EXPECT_EQ(none.samples(), 0);
    std::vector<double> logits(kClasses, 0.0);
    logits[7] = 1;
    for (int i = 0; i < c.rank(); ++i) some.Add(logits, std::span(&label, 1), 1);
    some.SumOverRanks(c);
    EXPECT_EQ(some.samples(), 3);
    EXPECT_EQ(some.samples_of(label), 3);
    EXPECT_EQ(some.confusion(label, 7), 3);
    EXPECT_EQ(some.confusion(label, label), 0);
    EXPECT_EQ(some.accuracy(), 0);
  });
}

}  // namespace
}  // namespace carole::train
