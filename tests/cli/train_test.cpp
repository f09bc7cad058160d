// carole train and eval as users run them: alone, under mpirun, stopped and resumed.
#include <nlohmann/json.hpp>

#include "tests/cli/cli.h"

namespace carole::testing {
namespace {

using ::testing::HasSubstr;

// Returns the value of a field in /proc/PROCESS/status.
std::string StatusOf(pid_t process, const std::string& field) {
  const std::string status = ReadText("/proc/" + std::to_string(process) + "/status");
  const std::string start = "\n" + field + ":\t";
  const size_t found = status.find(start);
  if (found == std::string::npos) return "";
  const size_t begin = found + start.size();
  return status.substr(begin, status.find('\n', begin) - begin);
}

bool IsPending(int signal, pid_t process) {
  return (std::stoull(StatusOf(process, "ShdPnd"), nullptr, 16) >> (signal - 1) & 1) != 0;
}

class TrainTest : public CliTest {
 protected:
  // Runs to the end and expects success.
  ProcessResult Train(const std::string& train_dir, const Words& more = {}, int ranks = 1) {
    return RunToEnd(TrainWords(train_dir, more), ranks);
  }

  // Sends the signal while rank 0 is stopped, so that the run cannot end before it arrives. Expects
  // that the resumed run ends with the same bits as one that was not stopped.
  void StopAndResume(int signal, int ranks) {
    const Words steps = {"--max_number_of_steps=100", "--collective_timeout=600"};
    Train(folder_ / "whole", steps, ranks);
    Subprocess job(
        WithFault("0:5:input:freeze", CaroleWords(TrainWords(train_dir_, steps), ranks)));
    pid_t rank = 0;
    const auto is_stopped = [&] {
      for (pid_t process : ProcessesWith(train_dir_)) {
        if (StatusOf(process, "State").starts_with("T")) rank = process;
      }
      return rank != 0;
    };
    ASSERT_TRUE(job.WaitUntil(is_stopped, 60)) << job.err();
    job.Signal(signal);  // mpirun forwards it
    ASSERT_TRUE(job.WaitUntil([&] { return IsPending(signal, rank); }, 60)) << job.err();
    kill(rank, SIGCONT);
    EXPECT_TRUE(FailsWith(job.Wait(), 75, {"asked to stop", "saving at step"}));
    Train(train_dir_, steps, ranks);
    EXPECT_EQ(DigestOf(train_dir_), DigestOf(folder_ / "whole"));
  }
};

double LossAt(const std::string& log, int step) {
  const std::string start = "global step " + std::to_string(step) + ": loss = ";
  const size_t found = log.find(start);
  return found == std::string::npos ? -1 : std::stod(log.substr(found + start.size()));
}

// Rank 0's own statistics also continue from a checkpoint, because a training step does not use
// them.
TEST_F(TrainTest, RunningStatisticsAreTheMeanOfRanksOrThoseOfRank0) {
  const auto train = [&](const std::string& folder, const std::string& flag, int steps) {
    Train(folder,
          {"--model_name=mobilenet_v1_025", "--train_image_size=32", flag,
           "--max_number_of_steps=" + std::to_string(steps)},
          2);
  };
  train(folder_ / "mean", "--average_statistics", 2);
  train(folder_ / "first", "--noaverage_statistics", 2);
  EXPECT_NE(DigestOf(folder_ / "first"), DigestOf(folder_ / "mean"));
  train(train_dir_, "--noaverage_statistics", 1);
  train(train_dir_, "--noaverage_statistics", 2);
  EXPECT_EQ(DigestOf(train_dir_), DigestOf(folder_ / "first"));
  for (const std::string flag : {"--reproducible", "--local_sgd_steps=2"}) {
    const ProcessResult refused = Carole(
        TrainWords(folder_ / "other", {"--model_name=lenet", "--noaverage_statistics", flag}));
    EXPECT_TRUE(
        FailsWith(refused, 64, {"--noaverage_statistics: does not fit", flag.substr(0, 8)}));
  }
}

TEST_F(TrainTest, LogsAsTfSlimAndLearns) {
  const ProcessResult run = Train(train_dir_, {"--max_number_of_steps=60", "--batch_size=32",
                                               "--num_ps_tasks=2", "--log_dir", folder_ / "log"});
  EXPECT_THAT(run.err,
              ::testing::ContainsRegex(
                  "global step 60: loss = [0-9]+\\.[0-9]{4} \\([0-9]+\\.[0-9]{3} sec/step\\)"));
  for (const char* text :
       {"3274634 parameters", "32 local, 32 global", "momentum 0.9", "300 samples", "num_ps_tasks",
        "Saving checkpoint to path", "Recording summary at step 60.",
        "global_step/sec: ", "Stopping Training.", "Finished training! Saving model to disk."})
    EXPECT_THAT(run.err, HasSubstr(text));
  EXPECT_LT(LossAt(run.err, 60), LossAt(run.err, 4) - 0.5) << run.err;
  const auto log_file = *std::filesystem::directory_iterator(folder_ / "log");
  EXPECT_THAT(ReadText(log_file), HasSubstr("total_loss_1"));
  const ProcessResult eval = RunToEnd(EvalWords(train_dir_, {"--eval_dir", folder_ / "eval"}));
  EXPECT_THAT(eval.out, HasSubstr("seven"));
  const auto event_file = *std::filesystem::directory_iterator(folder_ / "eval");
  for (const char* tag : {"eval/Accuracy", "eval/Loss"})
    EXPECT_THAT(ReadText(event_file), HasSubstr(tag));
}

// Returns the steps at which summaries were recorded.
std::vector<int> StepsRecorded(const std::string& log) {
  const std::string words = "Recording summary at step ";
  std::vector<int> steps;
  for (size_t at = 0; (at = log.find(words, at)) != std::string::npos; at += words.size())
    steps.push_back(std::stoi(log.substr(at + words.size())));
  return steps;
}

TEST_F(TrainTest, RecordsSummariesBySteps) {
  const ProcessResult by_steps =
      Train(folder_ / "by_steps", {"--save_summaries_steps=5", "--save_summaries_secs=0"});
  EXPECT_EQ(StepsRecorded(by_steps.err), (std::vector<int>{1, 5, 10, 12}));
  EXPECT_EQ(StepsRecorded(Train(train_dir_).err), (std::vector<int>{1, 12}));
}

TEST_F(TrainTest, TwoRanksDoWhatOneDoesWithTwiceTheBatch) {
  const ProcessResult one = Train(folder_ / "one", {"--batch_size=16"});
  const ProcessResult two = Train(folder_ / "two", {"--batch_size=8"}, 2);
  EXPECT_THAT(two.err, HasSubstr("8 local, 16 global"));
  for (int step : {4, 8, 12})
    EXPECT_NEAR(LossAt(one.err, step), LossAt(two.err, step), 2e-3) << "step " << step;
}

// Ranks without shared memory are still ranks of one host.
TEST_F(TrainTest, RanksWithoutSharedMemoryDivideTheHostsBatch) {
  Words train = TrainWords(train_dir_, {"--train_batch_size=16", "--max_number_of_steps=2"});
  std::erase(train, "--batch_size=8");
  const ProcessResult run =
      RunProcess(WithEnvironment({"OMPI_MCA_osc=^sm"}, CaroleWords(train, 2)));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("not enough shared memory"));
  EXPECT_THAT(run.err, HasSubstr("8 local, 16 global"));
}

// 97 images: neither the number of ranks nor the batch divides them.
TEST_F(TrainTest, EvaluationIsTheSameOnAnyNumberOfRanks) {
  Train(train_dir_);
  WriteDigits(folder_ / "prime", 10, 97);
  const std::string data = folder_ / "prime_data";
  RunToEnd({"dataset", "build", "--dataset_name=mnist", "--raw_dir", folder_ / "prime",
            "--dataset_dir", data});
  // Outputs for all images, for three batches, and for three batches that are given per host.
  std::vector<std::string> outputs, parts, shares;
  const std::pair<Words, std::vector<std::string>*> runs[] = {
      {{}, &outputs},
      {{"--max_num_batches=3"}, &parts},
      {{"--max_num_batches=3", "--eval_batch_size=16"}, &shares}};
  for (int ranks : {1, 2, 3}) {
    for (const auto& [flags, texts] : runs) {
      Words words{"--json", "--dataset_dir=" + data};
      words.insert(words.end(), flags.begin(), flags.end());
      const ProcessResult eval = RunToEnd(EvalWords(train_dir_ + "/model.ckpt-12", words), ranks);
      texts->push_back(eval.out);
    }
  }
  const auto json = nlohmann::json::parse(outputs[0]);
  EXPECT_EQ(json["samples"], 97);
  EXPECT_GT(json["loss"], 0);
  EXPECT_EQ(json["classes"][3]["samples"], 10);
  EXPECT_EQ(json["classes"][8]["samples"], 9);
  EXPECT_EQ(json["confusion"].size(), 10U);
  EXPECT_EQ(nlohmann::json::parse(parts[0])["samples"], 3 * 16);
  EXPECT_EQ(shares[0], parts[0]);
  for (const auto& texts : {outputs, parts, shares}) {
    EXPECT_EQ(texts[1], texts[0]);
    EXPECT_EQ(texts[2], texts[0]);
  }
}

TEST_F(TrainTest, NoRankAppliesGradientsThatAreNotFinite) {
  const Words hot = {"--optimizer=sgd", "--learning_rate=1e30", "--log_every_n_steps=1"};
  EXPECT_TRUE(FailsWith(Carole(TrainWords(train_dir_, hot), 2), 78,
                        {"after step 1: not finite", "rank 0: gradient of LeNet/",
                         "rank 1: gradient of LeNet/", "diverged", "there is no checkpoint yet"}));
  Words skipping = hot;
  skipping.insert(skipping.end(), {"--on_nan=skip", "--loss_scale=1024"});
  const ProcessResult skipped = Carole(TrainWords(train_dir_, skipping), 2);
  EXPECT_THAT(skipped.err, HasSubstr("all ranks skip this step"));
  EXPECT_THAT(skipped.err, ::testing::Not(HasSubstr("global step 2:")));
  EXPECT_TRUE(FailsWith(skipped, 78, {"diverged", ", or a --loss_scale below 1024"}));
}

TEST_F(TrainTest, ResumesBitwiseAfterKill) {
  Train(folder_ / "whole");
  const Words killed = CaroleWords(TrainWords(train_dir_, {"--save_interval_secs=1e-9"}));
  EXPECT_EQ(RunProcess(WithFault("0:8:input:kill", killed)).exit_code, 128 + SIGKILL);
  const ProcessResult rest = Train(train_dir_);
  EXPECT_THAT(rest.err, ::testing::ContainsRegex("resuming from .*model.ckpt-[0-9]+.h5 at step"));
  EXPECT_EQ(DigestOf(train_dir_), DigestOf(folder_ / "whole"));
}

// The last checkpoint of a run that was stopped is not from its last step.
TEST_F(TrainTest, EvaluatorWaitsForTheLastStep) {
  const auto evaluate = [&] {
    return Carole(EvalWords(
        train_dir_, {"--until_trained", "--eval_interval_secs=0.1", "--timeout=1", "--eval_dir="}));
  };
  const ProcessResult stopped =
      Carole(TrainWords(train_dir_, {"--max_number_of_steps=1000000", "--max_time=0.1"}));
  ASSERT_EQ(stopped.exit_code, 75) << stopped.err;
  EXPECT_THAT(evaluate().err, ::testing::Not(HasSubstr("is from the last step of its run")));
  std::filesystem::remove_all(train_dir_);
  Train(train_dir_);
  EXPECT_THAT(evaluate().err, HasSubstr("is from the last step of its run"));
}

TEST_F(TrainTest, RateIsScaledByTheGlobalBatch) {
  const ProcessResult run = Train(train_dir_,
                                  {"--learning_rate=0.01", "--learning_rate_base_batch=8",
                                   "--batch_size=8", "--max_number_of_steps=1"},
                                  2);
  EXPECT_THAT(run.err, HasSubstr("0.02 (0.01 for global batches of 8)"));
}

// The run resumes within an epoch. The seed gives the order of the epoch, so with another seed some
// records would be seen twice and others never.
TEST_F(TrainTest, ResumesWithTheSeedThatItStartedWith) {
  Train(folder_ / "whole");
  Train(train_dir_, {"--max_number_of_steps=5"});
  const ProcessResult rest = Train(train_dir_, {"--seed=99"});
  EXPECT_THAT(rest.err, HasSubstr("--seed=99: ignored: the run was resumed and keeps its seed"));
  EXPECT_EQ(DigestOf(train_dir_), DigestOf(folder_ / "whole"));
}

TEST_F(TrainTest, SavesOnSigtermAndResumesBitwise) { StopAndResume(SIGTERM, 1); }

TEST_F(TrainTest, RanksSaveTogetherOnSigusr1AndResumeBitwise) { StopAndResume(SIGUSR1, 2); }

// A power of two changes only exponents.
TEST_F(TrainTest, LossScaleChangesNothingUntilGradientsOverflow) {
  Train(folder_ / "plain");
  Train(folder_ / "scaled", {"--loss_scale=1024"});
  EXPECT_EQ(DigestOf(folder_ / "scaled"), DigestOf(folder_ / "plain"));
  Train(train_dir_, {"--loss_scale=dynamic"});
  const ProcessResult shown = Carole({"checkpoint", "inspect", "--all", train_dir_});
  EXPECT_THAT(shown.out, HasSubstr("loss_scale_good_steps"));
  EXPECT_TRUE(FailsWith(Carole(TrainWords(folder_ / "odd", {"--loss_scale=1000"})), 64,
                        {"--loss_scale", "got 1000, want auto, dynamic, or a power of two"}));
}

TEST_F(TrainTest, DctMethodDecidesThePixelsOfJpegs) {
  const std::string jpegs = folder_ / "jpegs";
  RunToEnd({"dataset", "build", "--dataset_name=synthetic", "--num_images=24", "--num_classes=4",
            "--image_width=48", "--dataset_dir=" + jpegs});
  Words words = {"--dataset_name=synthetic",
                 "--dataset_dir=" + jpegs,
                 "--model_name=cifarnet",
                 "--backend=reference",
                 "--threads=1",
                 "--max_number_of_steps=3"};
  Train(folder_ / "default", words);
  words.push_back("--dct_method=INTEGER_FAST");
  Train(folder_ / "fast", words);
  words.back() = "--dct_method=INTEGER_ACCURATE";
  Train(folder_ / "accurate", words);
  EXPECT_EQ(DigestOf(folder_ / "default"), DigestOf(folder_ / "fast"));
  EXPECT_NE(DigestOf(folder_ / "accurate"), DigestOf(folder_ / "fast"));
}

// lenet's preprocessing gives whole pixel values, so its images are sent as bytes by default.
TEST_F(TrainTest, BytesGiveTheSameBitsAsFloatsIfPixelsAreWhole) {
  const ProcessResult bytes = Train(train_dir_, {}, 2);
  EXPECT_THAT(bytes.err, HasSubstr("preprocessing lenet, as uint8"));
  const ProcessResult floats = Train(folder_ / "floats", {"--input_dtype=fp32"}, 2);
  EXPECT_THAT(floats.err, HasSubstr("preprocessing lenet, as fp32"));
  EXPECT_EQ(DigestOf(train_dir_), DigestOf(folder_ / "floats"));
}

// Other pixels are rounded, so users must ask for bytes.
TEST_F(TrainTest, BytesGiveNearlyTheSameLossesIfPixelsAreRounded) {
  const Words resized = {"--preprocessing_name=imagenet_resnet", "--learning_rate=0.0005"};
  const ProcessResult floats = Train(folder_ / "floats", resized);
  EXPECT_THAT(floats.err, HasSubstr("preprocessing imagenet_resnet, as fp32"));
  Words bytes = resized;
  bytes.push_back("--input_dtype=uint8");
  const ProcessResult rounded = Train(train_dir_, bytes);
  for (int step : {4, 8, 12})
    EXPECT_NEAR(LossAt(rounded.err, step), LossAt(floats.err, step),
                0.005 * LossAt(floats.err, step));
  EXPECT_NE(DigestOf(train_dir_), DigestOf(folder_ / "floats"));
  EXPECT_TRUE(FailsWith(
      Carole(TrainWords(folder_ / "no", {"--preprocessing_name=cifarnet", "--input_dtype=uint8"})),
      64, {"--input_dtype", "cifarnet standardizes each image"}));
}

TEST_F(TrainTest, ResumesInAnotherPrecisionAndSaysSo) {
  const ProcessResult first = Carole(TrainWords(train_dir_, {"--precision=bf16"}));
  if (first.exit_code != 0) {
    EXPECT_TRUE(FailsWith(first, 78, {"--precision", "bf16"}));
    GTEST_SKIP() << "skipped: bf16 is refused here";
  }
  const ProcessResult rest = Train(train_dir_, {"--max_number_of_steps=14"});
  EXPECT_THAT(rest.err,
              HasSubstr("precision: the run used bf16 so far and now continues with fp32"));
  EXPECT_EQ(Train(train_dir_, {"--max_number_of_steps=16"}).err.find("precision: the run used"),
            std::string::npos);
}

// A run is worth more than its summaries.
TEST_F(TrainTest, ContinuesIfTheDiskOfSummariesIsFull) {
  std::string train;
  const std::string log_dir = folder_ / "log";
  std::filesystem::create_directory(log_dir);
  for (const std::string& word : CaroleWords(TrainWords(
           train_dir_, {"--max_number_of_steps=2", "--histograms", "--log_dir=" + log_dir})))
    train += " '" + word + "'";
  const std::string mount = "mount -t tmpfs -o size=4k none '" + log_dir + "' || exit 99;";
  const ProcessResult run = RunProcess({"unshare", "--mount", "sh", "-c", mount + train});
  if (run.exit_code == 99 || run.exit_code == 1)
    GTEST_SKIP() << "skipped: no full disk can be made here: " << run.err;
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("No space left on device"));
  EXPECT_THAT(run.err, HasSubstr("the run continues"));
  EXPECT_TRUE(std::filesystem::exists(train_dir_ + "/model.ckpt-2.h5"));
}

TEST_F(TrainTest, SaysHowManyThreadsItUses) {
  const Words train = CaroleWords(TrainWords("", {"--max_number_of_steps=1", "--threads=0"}));
  const Words few = WithEnvironment({"OMP_NUM_THREADS=1"}, train);
  Words bound = {"mpirun", "--allow-run-as-root", "-np", "1", "--bind-to", "core"};
  bound.insert(bound.end(), train.begin(), train.end());
  if (RunProcess(train).err.find("1 x 1 threads") != std::string::npos)
    GTEST_SKIP() << "skipped: one core, or a share of one";
  const ProcessResult fewer = RunProcess(few);
  EXPECT_THAT(fewer.err, HasSubstr("because of OMP_NUM_THREADS; --threads overrides it"));
  EXPECT_THAT(fewer.err, HasSubstr("1 x 1 threads"));
  EXPECT_THAT(fewer.err, HasSubstr("none: nothing is saved"));
  const ProcessResult wrong =
      RunProcess(WithEnvironment({"OMP_NUM_THREADS=many", "CAROLE_SIMD_LEVEL=1"}, train));
  EXPECT_THAT(wrong.err, HasSubstr("OMP_NUM_THREADS: got many, want a whole number above 0"));
  EXPECT_THAT(wrong.err, HasSubstr("CAROLE_SIMD_LEVEL: got 1, want 2, 3 or 4; using 2"));
  EXPECT_THAT(RunProcess(bound).err, HasSubstr("start with mpirun --bind-to none"));
}

TEST_F(TrainTest, StartingAFinishedRunAgainChangesNothing) {
  Train(train_dir_);
  const std::string digest = DigestOf(train_dir_);
  Train(train_dir_);
  EXPECT_EQ(DigestOf(train_dir_), digest);
}

}  // namespace
}  // namespace carole::testing
