// Tests that runs resume: carole's own, on another number of ranks, and TensorFlow's.
#include <algorithm>

#include "io/checkpoint/checkpoint_folder.h"
#include "io/tensorflow/tf_checkpoint.h"
#include "tests/train/loop/job.h"

namespace carole::train {
namespace {

using carole::testing::FullCommunicator;
using carole::testing::LargestDifference;
using carole::testing::RunRanks;
using carole::testing::SmallStep;
using ::testing::HasSubstr;

void ExpectResumeIsBitwise(std::unique_ptr<Backend> (*backend)(int threads)) {
  for (const optim::OptimizerEntry& entry : optim::kOptimizers) {
    const TemporaryFolder whole, halves;
    Job job{.options = OptionsFor(whole, 8), .optimizer = std::string(entry.name)};
    job.num_ranks = 2;
    job.batch_norm = true;
    job.backend = backend;
    const JobResult uninterrupted = RunJob(job);
    job.options = OptionsFor(halves, 4);
    RunJob(job);
    job.options.max_number_of_steps = 8;
    job.options.seed = 99;  // ignored: a resumed run keeps its seed
    const JobResult resumed = RunJob(job);
    ExpectNoErrors(resumed);
    EXPECT_EQ(resumed.state.step, 8);
    EXPECT_EQ(resumed.state.seed, 11u);
    EXPECT_EQ(resumed.state.epoch, uninterrupted.state.epoch);
    EXPECT_EQ(resumed.state.position, uninterrupted.state.position);
    EXPECT_EQ(resumed.weights, uninterrupted.weights) << entry.name;
    EXPECT_EQ(io::ReadLatest(whole.path())->checkpoint.slots.size(),
              io::ReadLatest(halves.path())->checkpoint.slots.size());
  }
}

TEST(ResumeTest, ResumeIsBitwise) { ExpectResumeIsBitwise(MakeReferenceBackend); }

// Blocked layouts contain padding. A resume fills it with zeros, in slots too.
TEST(ResumeTest, ResumeIsBitwiseInBlockedLayouts) {
  if (!OneDnnAvailable()) GTEST_SKIP() << "skipped: built without oneDNN";
  ExpectResumeIsBitwise(MakeOneDnnBackend);
}

// Only rank 0 reads the checkpoint; it broadcasts this part of the state as well.
TEST(ResumeTest, AllRanksGetMovingAveragesAndLossScaleOfRank0) {
  RunRanks(3, [](FullCommunicator& c) {
    StepOptions options{.optimizer = "adam", .moving_average_decay = 0.9};
    options.loss_scale = {.initial = 4, .is_dynamic = true};
    SmallStep step(c, options, {.batch_norm = true});
    RunState state{.step = c.rank()};
    const ReplicaView replica = step.replica();
    step.store().Initialize(7 + c.rank());
    replica.moving_averages->Reset();
    if (c.rank() == 0) {
      replica.loss_scale->SetScalar("loss_scale", 256);
      replica.loss_scale->SetScalar("loss_scale_good_steps", 5);
    }
    BroadcastState(c, replica, state);
    EXPECT_EQ(state.step, 0);
    EXPECT_EQ(replica.loss_scale->value(), 256);
    EXPECT_EQ(replica.loss_scale->scalars().at(1).value, 5);
    for (size_t i = 0; i < replica.moving_averages->num_arenas(); ++i) {
      const std::span<std::byte> bytes = replica.moving_averages->shadow(i);
      const std::string mine(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      const std::vector<char> all =
          collectives::AllGatherValues<char>(c, mine, {.what = "moving averages"});
      for (int rank = 0; rank < c.size(); ++rank)
        EXPECT_EQ(std::string_view(all.data() + rank * mine.size(), mine.size()), mine) << rank;
    }
  });
}

// As in TF-Slim, moving averages start from the initial weights (beta is 0), not from the weights
// that a warm start restores afterwards.
TEST(ResumeTest, MovingAveragesStartFromInitialWeights) {
  const TemporaryFolder folder;
  ExpectNoErrors(RunJob({.options = OptionsFor(folder, 1),
                         .learning_rate = 1e-9,
                         .batch_norm = true,
                         .moving_average_decay = 0.5,
                         .warm_start_beta = std::vector<float>(12, 5.0f)}));
  const auto latest = io::ReadLatest(folder.path());
  const auto& slots = latest->checkpoint.slots;
  const auto average = std::ranges::find(slots, "net/conv/BatchNorm/beta/ExponentialMovingAverage",
                                         &io::CheckpointVariable::name);
  ASSERT_NE(average, slots.end());
  constexpr double kDecay = 2.0 / 11;  // (1 + n) / (10 + n) after the first step
  for (const float value : average->data) EXPECT_NEAR(value, 5 * (1 - kDecay), 1e-5);
}

TEST(ResumeTest, ResumesOnAnotherNumberOfRanks) {
  const TemporaryFolder whole, parts;
  const JobResult uninterrupted = RunJob({.options = OptionsFor(whole, 8)});
  RunJob({.options = OptionsFor(parts, 3), .num_ranks = 4});
  const JobResult resumed = RunJob({.options = OptionsFor(parts, 8), .num_ranks = 2});
  ExpectNoErrors(resumed);
  EXPECT_LT(LargestDifference(resumed.weights, uninterrupted.weights), 1e-6);
}

TEST(ResumeTest, LogsAnotherGlobalBatchSize) {
  const TemporaryFolder folder;
  Job job{.options = OptionsFor(folder, 3)};
  const auto log_of = [&](const char* global_batch, int64_t steps) {
    job.options.attributes = {{kGlobalBatch, global_batch}};
    job.options.max_number_of_steps = steps;
    ::testing::internal::CaptureStderr();
    ExpectNoErrors(RunJob(job));
    return ::testing::internal::GetCapturedStderr();
  };
  log_of("8", 3);
  EXPECT_THAT(log_of("8", 4), ::testing::Not(HasSubstr("global batch size")));
  EXPECT_THAT(log_of("4", 5),
              HasSubstr("global batch size: the run used 8 so far and now continues with 4 samp"));
}

// A run of one step that resumes after three steps of four samples (of an epoch of 22 samples),
// with another value of an attribute.
struct ResumedRun {
  JobResult result;
  std::string log;
};
ResumedRun ResumeWith(const char* name, const char* before, const char* now) {
  const TemporaryFolder folder;
  Job job{.options = OptionsFor(folder, 3)};
  job.options.attributes = {{name, before}};
  ExpectNoErrors(RunJob(job));
  job.options.attributes = {{name, now}};
  job.options.max_number_of_steps = 4;
  ::testing::internal::CaptureStderr();
  JobResult result = RunJob(job);
  return {std::move(result), ::testing::internal::GetCapturedStderr()};
}

TEST(ResumeTest, StartsANewEpochIfTheRecordsChanged) {
  const ResumedRun same = ResumeWith(kRecordOrder, "22 records", "22 records");
  EXPECT_EQ(same.result.state.epoch, 0);
  EXPECT_EQ(same.result.state.position, 16);
  const ResumedRun other = ResumeWith(kRecordOrder, "30 records", "22 records");
  EXPECT_EQ(other.result.state.epoch, 1);
  EXPECT_EQ(other.result.state.position, 4);
  EXPECT_THAT(other.log,
              HasSubstr("the run used 30 records so far and now continues with 22 records; a new "
                        "epoch begins"));
  EXPECT_EQ(ResumeWith(kSplit, "train", "test").result.state.epoch, 1);
}

TEST(ResumeTest, WarnsAboutAnotherOptimizer) {
  EXPECT_THAT(ResumeWith(kOptimizer, "adam", "sgd").log,
              HasSubstr("\x1f$(optimizer): the run used adam so far and now continues with sgd"));
}

TEST(ResumeTest, ComparesClassNamesAndPreprocessing) {
  const ResumedRun more = ResumeWith(kClassNames, "cat\ndog", "cat\ndog\nemu");
  ExpectNoErrors(more.result);
  const ResumedRun renamed = ResumeWith(kClassNames, "cat\ndog", "cat\nhound");
  ExpectNoErrors(renamed.result);
  EXPECT_THAT(
      renamed.log,
      HasSubstr("[train] class names: 1 of 2 differ: class 1 was dog when the checkpoint was "
                "written and is hound now; if these are other classes, choose another "
                "\x1f$(train_dir), or fine-tune into one with \x1f$(checkpoint_path)"));
  const ResumedRun others = ResumeWith(kClassNames, "a\nb\nc\nd\ne", "a\nv\nw\nx\ny");
  EXPECT_THAT(others.log,
              HasSubstr("4 of 5 differ: class 1 was b when the checkpoint was written "
                        "and is v now, class 2 was c and is w now, class 3 was d and is "
                        "x now and 1 more; if"));
  const ResumedRun swapped = ResumeWith(kClassNames, "cat\ndog", "dog\ncat");
  EXPECT_THAT(swapped.result.errors[0], HasSubstr("the same names in another order"));
  EXPECT_THAT(
      ResumeWith("preprocessing", "lenet", "cifarnet").log,
      HasSubstr("\x1f$(preprocessing_name): the run used lenet so far and now continues with"));
}

TEST(ResumeTest, AnEvaluationAdvisesOtherData) {
  ::testing::internal::CaptureStderr();
  CompareEvaluationMetadata({{kClassNames, "cat\ndog"}}, {{kClassNames, "cat\nhound"}});
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      ::testing::AllOf(HasSubstr("[eval] class names: 1 of 2 differ"),
                       HasSubstr("evaluate with data that has the classes of the checkpoint")));
  EXPECT_THAT(
      [&] {
        CompareEvaluationMetadata({{kClassNames, "cat\ndog"}}, {{kClassNames, "dog\ncat"}});
      },
      ::testing::ThrowsMessage<ConfigError>(HasSubstr("[eval] class names: ")));
  EXPECT_THAT(
      [&] {
        RequireSameClasses(MetadataReader::kEvaluation, {{kNumClasses, "2"}, {kClassNames, "a\nb"}},
                           {{kNumClasses, "1"}, {kClassNames, "a"}}, "RUN");
      },
      ::testing::ThrowsMessage<DataError>(
          "[eval] RUN: was trained on other classes: got 1 classes "
          "in the data, want 2; missing: b; "
          "evaluate with data that has the classes of the checkpoint"));
}

TEST(ResumeTest, NamesTheClassesThatWereAdded) {
  constexpr MetadataReader kReader = MetadataReader::kTraining;
  const RunMetadata three = {{kNet, "lenet"}, {kNumClasses, "3"}, {kClassNames, "cat\ndog\nemu"}};
  const RunMetadata four = {
      {kNet, "lenet"}, {kNumClasses, "4"}, {kClassNames, "ape\ncat\ndog\nemu"}};
  RunMetadata of_another_net = four;
  of_another_net[kNet] = "cifarnet";
  EXPECT_THAT([&] { RequireSameClasses(kReader, three, four, "RUN/model.ckpt-3.h5"); },
              ::testing::ThrowsMessage<DataError>(
                  ::testing::AllOf(HasSubstr("RUN/model.ckpt-3.h5: was trained on other classes"),
                                   HasSubstr("got 4 classes in the data, want 3; new: ape;"))));
  EXPECT_THAT([&] { RequireSameClasses(kReader, four, three, "RUN"); },
              ::testing::ThrowsMessage<DataError>(HasSubstr("missing: ape;")));
  RequireSameClasses(kReader, three, of_another_net, "RUN");  // the variables will tell
  RequireSameClasses(kReader, {}, four, "RUN");
}

TEST(ResumeTest, RejectsTheBestCheckpointOfAnEarlierRun) {
  const TemporaryFolder folder;
  ExpectNoErrors(RunJob({.options = OptionsFor(folder, 2)}));
  std::filesystem::create_directory(folder / "best");
  std::filesystem::rename(io::CheckpointPath(folder.path(), 2), folder / "best/model.ckpt-2.h5");
  Job job{.options = OptionsFor(folder, 3)};
  job.options.keep_best = true;
  EXPECT_THAT(RunJob(job).errors[0], HasSubstr("best: got checkpoints of an earlier run"));
}

// Converts the latest checkpoint to one of TensorFlow. Such a file holds no position in the data,
// so the test saves at the end of an epoch.
void ConvertToTensorFlow(const std::string& from, const std::string& to) {
  const io::Checkpoint checkpoint = io::ReadLatest(from)->checkpoint;
  const auto bytes = [](const auto& values) {
    return std::span(reinterpret_cast<const char*>(values.data()),
                     values.size() * sizeof(values[0]));
  };
  std::vector<io::TfTensor> tensors;
  for (const auto* list : {&checkpoint.variables, &checkpoint.slots}) {
    for (const io::CheckpointVariable& v : *list)
      tensors.push_back({v.name, io::TfType::kFloat, v.shape, bytes(v.data)});
  }
  const std::vector<int64_t> step{checkpoint.step};
  tensors.push_back({"global_step", io::TfType::kInt64, {}, bytes(step)});
  io::WriteTfCheckpoint(to + "/model.ckpt-6", std::move(tensors));
}

TEST(ResumeTest, ResumesARunOfTensorFlow) {
  const TemporaryFolder whole, ours, theirs;
  Job job{.options = OptionsFor(whole, 8), .num_ranks = 2, .batch_norm = true};
  const JobResult uninterrupted = RunJob(job);
  job.options = OptionsFor(ours, 6);
  RunJob(job);
  ConvertToTensorFlow(ours.path(), theirs.path());
  job.options = OptionsFor(theirs, 8);
  const JobResult resumed = RunJob(job);
  ExpectNoErrors(resumed);
  EXPECT_EQ(resumed.state.step, 8);
  EXPECT_EQ(resumed.state.seed, 11u);
  EXPECT_EQ(resumed.weights, uninterrupted.weights);
  EXPECT_EQ(StepsSaved(theirs), (std::vector<int64_t>{6, 8}));  // used from now on
  job.optimizer = "momentum";
  job.num_ranks = 1;
  EXPECT_THAT(RunJob(job).errors[0], HasSubstr("model.ckpt-8.h5: slot"));
  for (int64_t step : {6, 8}) std::filesystem::remove(io::CheckpointPath(theirs.path(), step));
  EXPECT_THAT(RunJob(job).errors[0], HasSubstr("model.ckpt-6: slot net/conv/weights/Momentum"));
}

}  // namespace
}  // namespace carole::train
