// Tests the order of the trainer's calls to callbacks, and the accuracy that steps report.
#include "src/train/loop/training_callback.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "src/train/loop/trainer.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/training.h"

namespace carole::train {
namespace {

using carole::TemporaryFolder;
using carole::testing::FormulaSource;
using carole::testing::FullCommunicator;
using carole::testing::RunRanks;
using carole::testing::SmallNet;
using carole::testing::SmallStep;
using ::testing::ElementsAre;

class Recorder : public TrainingCallback {
 public:
  void OnTrainBegin(const RunState& state) override { Add("started", state.step); }
  void OnStepBegin(int64_t step) override { Add("begins", step); }
  void OnStepEnd(const AppliedStep& step) override { Add("ended", step.state.step); }
  void OnEvaluationBegin(int64_t step) override { Add("evaluation", step); }
  void OnEvaluationEnd(int64_t step, const Metrics& metrics, double seconds) override {
    EXPECT_EQ(metrics.num_classes(), 10);
    EXPECT_GE(seconds, 0);
    Add("evaluated", step);
  }
  void OnSave(int64_t step, double /*seconds*/) override { Add("saved", step); }
  void OnTrainEnd(const RunState& state, bool finished) override {
    Add(finished ? "finished" : "stopped", state.step);
  }

  std::vector<std::string> calls;

 private:
  void Add(const char* what, int64_t step) { calls.push_back(fmt::format("{} {}", what, step)); }
};

TEST(TrainingCallback, IsCalledInTheSameOrderOnEveryRank) {
  const TemporaryFolder folder;
  RunRanks(2, [&](FullCommunicator& c) {
    SmallStep step(c, {.optimizer = "sgd"}, {.rows = 2});
    const optim::LearningRate rate({.type = "fixed", .learning_rate = 0.01});
    Recorder recorder;
    TrainerOptions options{.train_dir = folder.path(),
                           .max_number_of_steps = 3,
                           .evaluate = [] { return Metrics(10); },
                           .eval_every = 2,
                           .callbacks = {&recorder}};
    Trainer trainer(
        step, c, c, rate,
        [&](const RunState& start) {
          return std::make_unique<FormulaSource>(
              FormulaSource::Options{.local_batch = 2, .rank = c.rank(), .size = c.size()}, start);
        },
        options);
    trainer.Run();
    EXPECT_THAT(recorder.calls,
                ElementsAre("started 0", "begins 0", "ended 1", "begins 1", "ended 2", "saved 2",
                            "evaluation 2", "evaluated 2", "begins 2", "ended 3", "saved 3",
                            "evaluation 3", "evaluated 3", "finished 3"));
  });
}

// The accuracy counts the valid rows of all micro-batches and ranks.
TEST(TrainStep, ReportsTheAccuracyOfTheGlobalBatch) {
  std::vector<double> accuracies[3];
  const auto train = [&](int ranks, int64_t rows, int64_t micro_batches, auto& accuracies) {
    RunRanks(ranks, [&](FullCommunicator& c) {
      const auto backend = MakeReferenceBackend(1);
      SmallNet net(rows);
      const ValueId logits = net.logits;
      TrainStep step(std::move(net.graph), *backend, c,
                     {.optimizer = "adam", .accumulation_steps = micro_batches});
      step.store().Initialize(7);
      FormulaSource source(
          {.local_batch = rows * micro_batches, .rank = c.rank(), .size = c.size()});
      for (int64_t s = 0; s < 18; ++s) {
        const io::Batch& batch = *source.Next();
        const StepResult result = step.Run(batch, {.step = s, .learning_rate = 0.01});
        if (c.rank() == 0) accuracies.push_back(result.accuracy);
        if (ranks > 1 || micro_batches > 1) continue;
        const std::vector<double> values = step.executable().Output(logits);
        double correct = 0;
        for (int64_t row = 0; row < batch.valid; ++row) {
          const auto first = values.begin() + row * 10;
          correct += std::max_element(first, first + 10) - first == batch.labels[row];
        }
        EXPECT_DOUBLE_EQ(result.accuracy, correct / static_cast<double>(batch.valid)) << s;
      }
    });
  };
  train(1, 8, 1, accuracies[0]);
  train(2, 4, 1, accuracies[1]);
  train(1, 2, 4, accuracies[2]);
  EXPECT_GT(accuracies[0].back(), 0.2);
  for (size_t s = 0; s < accuracies[0].size(); ++s) {
    EXPECT_NEAR(accuracies[1][s], accuracies[0][s], 1e-12) << s;
    EXPECT_NEAR(accuracies[2][s], accuracies[0][s], 1e-12) << s;
  }
}

}  // namespace
}  // namespace carole::train
