#include "src/train/loop/trainer.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <set>

#include "io/checkpoint/checkpoint_folder.h"
#include "src/train/loop/stop_signals.h"
#include "tests/train/loop/job.h"
#include "tests/train/step/device_training.h"

namespace carole::train {
namespace {

using carole::testing::AllWeights;
using carole::testing::FormulaSource;
using carole::testing::FullCommunicator;
using carole::testing::LargestDifference;
using carole::testing::RunRanks;
using carole::testing::SmallStep;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(TrainerTest, StartMayTakeLongerThanTheDeadline) {
  using std::chrono::milliseconds;
  const Job job{.options = {.max_number_of_steps = 2},
                .num_ranks = 2,
                .start_delay = milliseconds(8000),
                .deadline_seconds = 6};
  const JobResult result = RunJob(job);
  ExpectNoErrors(result);
  EXPECT_EQ(result.state.step, 2);
}

TEST(TrainerTest, AFinishedRunDoesNothingWhenRunAgain) {
  const TemporaryFolder folder;
  const Job job{.options = OptionsFor(folder, 3), .num_ranks = 2};
  const JobResult first = RunJob(job);
  ::testing::internal::CaptureStderr();
  const JobResult again = RunJob(job);
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      AllOf(HasSubstr("no step was trained: the run is at step 3, which is its last step of 3"),
            Not(HasSubstr("Saving model"))));
  ExpectNoErrors(again);
  EXPECT_EQ(again.codes, std::vector<ExitCode>(2, ExitCode::kOk));
  EXPECT_EQ(again.state.step, 3);
  EXPECT_EQ(again.weights, first.weights);
  ::testing::internal::CaptureStderr();
  ExpectNoErrors(RunJob({.options = OptionsFor(folder, 2)}));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("the run is at step 3, which is past its end at step 2; to train more"));
}

TEST(TrainerTest, AStopRequestOnOneRankSavesAndStopsAll) {
  const TemporaryFolder folder;
  Job job{.options = OptionsFor(folder, 1000), .num_ranks = 2};
  std::atomic<int> asked = 0;
  job.options.stop_requested = [&] { return ++asked >= 10; };
  const JobResult result = RunJob(job);
  ExpectNoErrors(result);
  EXPECT_EQ(result.codes, std::vector<ExitCode>(2, ExitCode::kSaved));
  EXPECT_LT(result.state.step, 12);
  const auto latest = io::ReadLatest(folder.path());
  ASSERT_TRUE(latest);
  EXPECT_EQ(latest->checkpoint.step, result.state.step);
}

// A repeated signal changes nothing, except that a second Ctrl-C kills the process.
TEST(StopSignals, ASecondInterruptKillsAndNohupIsRespected) {
  const auto twice = [](int signal) {
    CatchStopSignals();
    std::raise(signal);
    if (!StopRequested()) std::_Exit(1);
    std::raise(signal);
    std::_Exit(0);
  };
  EXPECT_EXIT(twice(SIGINT), ::testing::KilledBySignal(SIGINT), "");
  for (const int signal : {SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU})
    EXPECT_EXIT(twice(signal), ::testing::ExitedWithCode(0), "") << signal;
  const auto with_nohup = [] {
    std::signal(SIGHUP, SIG_IGN);
    CatchStopSignals();
    std::raise(SIGHUP);
    std::_Exit(StopRequested() ? 1 : 0);
  };
  EXPECT_EXIT(with_nohup(), ::testing::ExitedWithCode(0), "");
}

TEST(TrainerTest, SavesAndLogsByTime) {
  const TemporaryFolder folder;
  Job job{.options = OptionsFor(folder, 6), .num_ranks = 2};
  job.options.saves.interval_secs = 0;
  job.options.keep_checkpoints = 3;
  job.options.log_every_n_steps = 2;
  ::testing::internal::CaptureStderr();
  ExpectNoErrors(RunJob(job));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, ContainsRegex("global step 2: loss = [0-9]+\\.[0-9]{4} "
                                 "\\([0-9]+\\.[0-9]{3} sec/step\\)\n"));
  EXPECT_THAT(log, Not(HasSubstr("global step 3:")));
  EXPECT_THAT(log, HasSubstr("Finished training! Saving model to disk."));
  EXPECT_EQ(StepsSaved(folder), (std::vector<int64_t>{4, 5, 6}));
}

// The weights do not depend on when the clock requests a checkpoint.
TEST(TrainerTest, TimedSavesWaitForLocalSgd) {
  std::vector<std::vector<double>> weights;
  for (const int interval : {600, 0}) {
    const TemporaryFolder folder;
    Job job{.options = OptionsFor(folder, 10), .num_ranks = 2, .local_sgd_steps = 4};
    job.options.saves.interval_secs = interval;
    const JobResult result = RunJob(job);
    ExpectNoErrors(result);
    weights.push_back(result.weights);
    EXPECT_EQ(StepsSaved(folder),
              interval == 0 ? std::vector<int64_t>({4, 8, 10}) : std::vector<int64_t>{10});
  }
  EXPECT_EQ(weights[0], weights[1]);
}

size_t CountOf(const std::string& words, const std::string& text) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(words, at)) != std::string::npos; ++at) ++count;
  return count;
}

TEST(TrainerTest, SavesOnceBeforeEachEvaluation) {
  const std::vector<int64_t> evaluated = {2, 4, 5}, all = {1, 2, 3, 4, 5};
  for (const auto& [interval, steps] : {std::pair(600, evaluated), {0, all}}) {
    const TemporaryFolder folder;
    Job job{.options = OptionsFor(folder, 5), .num_ranks = 2};
    job.options.saves.interval_secs = interval;
    job.options.eval_every = 2;
    job.options.evaluate = [] { return Metrics(10); };
    ::testing::internal::CaptureStderr();
    ExpectNoErrors(RunJob(job));
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(StepsSaved(folder), steps);
    EXPECT_EQ(CountOf("Saving checkpoint to path", log), steps.size()) << log;
  }
}

// A device may have a second step in flight, but not while the weights are read.
TEST(TrainerTest, ADeviceSavesTheStepThatItEvaluates) {
  const TemporaryFolder whole, part;
  Job job{.options = OptionsFor(whole, 4), .backend = carole::testing::MakeWalledReference};
  job.options.eval_every = 2;
  job.options.evaluate = [] { return Metrics(10); };
  ExpectNoErrors(RunJob(job));
  job.options.train_dir = part.path();
  job.options.max_number_of_steps = 2;
  ExpectNoErrors(RunJob(job));
  EXPECT_EQ(io::ReadCheckpoint(io::CheckpointPath(whole.path(), 2)).digest,
            io::ReadCheckpoint(io::CheckpointPath(part.path(), 2)).digest);
}

// With --noaverage_statistics the running statistics of ranks differ.
TEST(TrainerTest, AllRanksEvaluateWithTheStatisticsOfRank0) {
  std::vector<std::vector<double>> evaluated(2);
  RunRanks(2, [&](FullCommunicator& c) {
    SmallStep step(c, {.optimizer = "sgd", .average_statistics = false},
                   {.rows = 2, .batch_norm = true});
    const optim::LearningRate rate({.type = "fixed", .learning_rate = 0.01});
    TrainerOptions options{.max_number_of_steps = 2};
    options.eval_every = 2;
    options.evaluate = [&] {
      evaluated[c.rank()] = AllWeights(step.store());
      return Metrics(10);
    };
    Trainer trainer(
        step, c, c, rate,
        [&](const RunState& start) {
          return std::make_unique<FormulaSource>(
              FormulaSource::Options{.local_batch = 2, .rank = c.rank(), .size = c.size()}, start);
        },
        options);
    trainer.Run();
  });
  EXPECT_FALSE(evaluated[0].empty());
  EXPECT_EQ(evaluated[0], evaluated[1]);
}

// Evaluations are due at steps 2, 4 and 5. The one at step 4 is interrupted.
TEST(TrainerTest, RepeatsAnInterruptedEvaluationThoughAnEarlierOneEnded) {
  const TemporaryFolder folder;
  Job job{.options = OptionsFor(folder, 5)};
  int evaluations = 0;
  job.options.eval_every = 2;
  job.options.evaluate = [&]() -> std::optional<Metrics> {
    if (++evaluations == 2) return std::nullopt;
    return Metrics(10);
  };
  EXPECT_EQ(RunJob(job).codes[0], ExitCode::kSaved);
  ExpectNoErrors(RunJob(job));
  EXPECT_EQ(evaluations, 4);
}

// In the middle of training and at its end. A third run has nothing left to do.
TEST(TrainerTest, RunsAnInterruptedEvaluationAgain) {
  for (const auto& [steps, saved] : {std::pair(5, 2), {2, 2}}) {
    const TemporaryFolder folder;
    Job job{.options = OptionsFor(folder, steps), .num_ranks = 2};
    job.options.eval_every = 2;
    job.options.evaluate = [] { return std::nullopt; };
    const JobResult result = RunJob(job);
    ExpectNoErrors(result);
    EXPECT_EQ(result.codes, std::vector<ExitCode>(2, ExitCode::kSaved));
    EXPECT_EQ(StepsSaved(folder), std::vector<int64_t>{saved});

    std::atomic<int> evaluations = 0;  // of both ranks
    job.options.evaluate = [&] {
      ++evaluations;
      return Metrics(10);
    };
    const int expected = steps == 2 ? 1 : 3;  // after 2, 4 and 5 steps
    for (int run = 0; run < 2; ++run) {
      const JobResult resumed = RunJob(job);
      ExpectNoErrors(resumed);
      EXPECT_EQ(resumed.codes, std::vector<ExitCode>(2, ExitCode::kOk));
      EXPECT_EQ(evaluations, 2 * expected) << "run " << run;
    }
  }
}

TEST(TrainerTest, CheckpointHoldsNamesAndPosition) {
  const TemporaryFolder folder;
  Job job{.options = OptionsFor(folder, 6)};
  job.options.attributes["net"] = "small";
  RunJob(job);
  const io::Checkpoint c = io::ReadLatest(folder.path())->checkpoint;
  EXPECT_EQ(c.step, 6);
  EXPECT_EQ(c.epoch, 1);
  EXPECT_EQ(c.position, 0);  // there are 22 samples, so the sixth batch of 4 is short
  EXPECT_EQ(c.seed, 11u);
  EXPECT_EQ(c.attributes.at("net"), "small");
  std::vector<std::string> slots;
  for (const auto& slot : c.slots) slots.push_back(slot.name);
  EXPECT_THAT(slots, ::testing::IsSupersetOf({"net/conv/weights/Adam", "net/conv/weights/Adam_1",
                                              "net/logits/biases/Adam_1", "beta1_power"}));
}

TEST(TrainerTest, ADivergedLossStopsAllRanks) {
  const TemporaryFolder folder;
  Job job{.options = OptionsFor(folder, 500), .optimizer = "sgd", .learning_rate = 1e30};
  job.num_ranks = 2;
  EXPECT_THAT(RunJob(job).errors, Each(HasSubstr("not finite: rank 0: loss")));
}

TEST(TrainerTest, SkipsAStepThatIsNotFiniteOnOneRank) {
  const TemporaryFolder folder;
  Job job{.options = OptionsFor(folder, 5), .num_ranks = 3, .global_batch = 6};
  job.batch_norm = true;
  job.bad_batches = {1, 3};
  job.options.on_nan = OnNan::kSkip;
  ::testing::internal::CaptureStderr();
  const JobResult result = RunJob(job);
  const std::string log = ::testing::internal::GetCapturedStderr();
  ExpectNoErrors(result);
  EXPECT_THAT(log, HasSubstr("step 2: not finite: rank 2: loss"));
  EXPECT_THAT(log, HasSubstr("step 3: not finite: rank 2: "));
  EXPECT_EQ(result.state.step, 5);
  EXPECT_EQ(result.state.epoch, 1);  // seven batches of 6 out of 22 samples
  EXPECT_EQ(result.state.position, 18);
  job.options.on_nan = OnNan::kStop;
  const TemporaryFolder other;
  job.options.train_dir = other.path();
  EXPECT_THAT(RunJob(job).errors, Each(HasSubstr("after step 1: not finite: rank 2: loss")));
}

// All ranks compute the number of micro-batches from Batch::max_valid.
TEST(TrainerTest, AllRanksKnowTheLargestNumberOfValidRows) {
  class MostValid : public TrainingCallback {
   public:
    void OnStepEnd(const AppliedStep& step) override {
      const std::lock_guard lock(mutex_);
      values.insert(step.result.batch.max_valid);
    }
    std::set<int64_t> values;

   private:
    std::mutex mutex_;
  } most;
  Job job{.options = {.max_number_of_steps = 1, .max_bad_records = 1, .seed = 11}};
  job.num_ranks = 2;
  job.short_batches = {0};  // the last rank has one valid row of two
  job.options.callbacks = {&most};
  ExpectNoErrors(RunJob(job));
  EXPECT_EQ(most.values, std::set<int64_t>{2});
}

// One of four records is skipped. Its mean over 3 records at learning rate 0.03 is the same update
// as a mean that wrongly divides by 4 at learning rate 0.04.
TEST(TrainerTest, SkippedRecordsDoNotCountInTheMean) {
  for (int ranks : {1, 2}) {
    Job job{.options = {.max_number_of_steps = 1, .seed = 11}, .optimizer = "sgd"};
    job.num_ranks = ranks;
    job.short_batches = {0};
    job.learning_rate = 0.04;
    const JobResult by_four = RunJob(job);
    job.options.max_bad_records = 1;
    job.learning_rate = 0.03;
    const JobResult by_three = RunJob(job);
    ExpectNoErrors(by_three);
    EXPECT_LT(LargestDifference(by_three.weights, by_four.weights), 1e-6) << ranks;
  }
}

// More steps are skipped than may be in a row, but never two in a row.
TEST(TrainerTest, MaySkipEverySecondStep) {
  Job job{.options = {.max_number_of_steps = 2 * kMaxSkippedInARow, .seed = 11}};
  for (int64_t i = 1; i < 4 * kMaxSkippedInARow; i += 2) job.bad_batches.insert(i);
  job.options.on_nan = OnNan::kSkip;
  const JobResult result = RunJob(job);
  ExpectNoErrors(result);
  EXPECT_EQ(result.state.step, 2 * kMaxSkippedInARow);
}

TEST(TrainerTest, StopsAfterTooManySkippedSteps) {
  const TemporaryFolder folder;
  Job job{.options = OptionsFor(folder, 5)};
  for (int64_t i = 1; i < 40; ++i) job.bad_batches.insert(i);
  job.options.on_nan = OnNan::kSkip;
  EXPECT_THAT(RunJob(job).errors[0], HasSubstr("after step 1: not finite: rank 0"));
}

TEST(TrainerTest, DoesNotSaveNanWeights) {
  const TemporaryFolder folder;
  Job job{.options = OptionsFor(folder, 3)};
  job.batch_norm = true;
  job.make_weights_nan = true;  // a ReLU may hide the NaN from the loss
  EXPECT_THAT(RunJob(job).errors[0], AllOf(HasSubstr("weights of net/conv/BatchNorm/beta"),
                                           HasSubstr("there is no checkpoint yet")));
  EXPECT_TRUE(io::ListCheckpoints(folder.path()).empty());
  job.make_weights_nan = false;
  job.options.max_number_of_steps = 1;
  ExpectNoErrors(RunJob(job));
  job.make_weights_nan = true;
  job.options.max_number_of_steps = 6;
  EXPECT_THAT(RunJob(job).errors[0], HasSubstr("the last checkpoint is intact"));
  EXPECT_EQ(StepsSaved(folder), std::vector<int64_t>{1});
}

TEST(TrainerTest, RejectsASecondRunInTheSameFolder) {
  const TemporaryFolder folder;
  const RunLock other(folder.path());
  EXPECT_THAT(RunJob({.options = OptionsFor(folder, 3)}).errors[0], HasSubstr(folder.path()));
}

TEST(TrainerTest, RejectsCheckpointsThatDoNotFit) {
  const TemporaryFolder folder;
  RunJob({.options = OptionsFor(folder, 3)});
  EXPECT_THAT(RunJob({.options = OptionsFor(folder, 6), .batch_norm = true}).errors[0],
              HasSubstr("net/conv/BatchNorm/beta"));
  EXPECT_THAT(RunJob({.options = OptionsFor(folder, 6), .optimizer = "rmsprop"}).errors[0],
              HasSubstr("slot net/conv/weights/RMSProp does not fit: got none"));
}

TEST(TrainerTest, NamesSlotsThatAreDropped) {
  const TemporaryFolder folder;
  RunJob({.options = OptionsFor(folder, 3), .optimizer = "momentum"});
  ::testing::internal::CaptureStderr();
  ExpectNoErrors(RunJob({.options = OptionsFor(folder, 4), .optimizer = "sgd"}));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::ContainsRegex("3 slots are dropped.*: net/conv/weights/Momentum"));
  EXPECT_THAT(RunJob({.options = OptionsFor(folder, 5), .optimizer = "momentum"}).errors[0],
              HasSubstr("that wrote it, or start in another \x1f$(train_dir)"));
}

// The accuracy of the best checkpoint is lost, but the run continues.
TEST(TrainerTest, ADamagedBestCheckpointDoesNotEndTheRun) {
  const TemporaryFolder folder;
  ExpectNoErrors(RunJob({.options = OptionsFor(folder, 2)}));
  std::filesystem::create_directory(folder / "best");
  WriteText(folder / "best/model.ckpt-2.h5", "cut short");
  Job job{.options = OptionsFor(folder, 3)};
  job.options.keep_best = true;
  ::testing::internal::CaptureStderr();
  const JobResult result = RunJob(job);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("best: cannot read the accuracy of the best checkpoint"));
  ExpectNoErrors(result);
  EXPECT_EQ(result.state.step, 3);
}

TEST(TrainerTest, SkipsADamagedNewestCheckpoint) {
  const TemporaryFolder folder;
  Job job{.options = OptionsFor(folder, 3)};
  RunJob(job);
  job.options.max_number_of_steps = 6;
  const JobResult whole = RunJob(job);
  const std::string path = io::CheckpointPath(folder.path(), 6);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  const JobResult again = RunJob(job);
  ExpectNoErrors(again);
  EXPECT_EQ(again.weights, whole.weights);
}

}  // namespace
}  // namespace carole::train
