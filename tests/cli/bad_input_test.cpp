// Bad data, files and flags end a run with one clear line and the right exit code.
#include "tests/cli/cli.h"
#include "tests/cli/damage.h"

namespace carole::testing {
namespace {

class BadInputTest : public CliTest {
 protected:
  // Trains one epoch, so that every record is read.
  ProcessResult TrainAnEpoch(const Words& more = {}, int ranks = 1) {
    Words words{"--batch_size=100", "--max_number_of_steps=4"};
    words.insert(words.end(), more.begin(), more.end());
    return Carole(TrainWords(train_dir_, words), ranks);
  }
  std::string CheckpointAt(int step) const {
    return train_dir_ + "/model.ckpt-" + std::to_string(step) + ".h5";
  }

  const std::string& good() {
    if (good_.empty()) good_ = ReadText(train_file_);
    return good_;
  }

 private:
  std::string good_;
};

TEST_F(BadInputTest, NamesAMissingDataFolder) {
  EXPECT_TRUE(FailsWith(TrainAnEpoch({"--dataset_dir=/no/such/folder"}), 65, {"/no/such/folder"}));
  EXPECT_TRUE(FailsWith(TrainAnEpoch({"--dataset_dir=" + data_dir_ + "/labels.txt"}), 65,
                        {data_dir_ + "/labels.txt: no file matches mnist_train.tfrecord"}));
  EXPECT_TRUE(FailsWith(TrainAnEpoch({"--dataset_dir=" + train_file_, "--eval_every=1"}), 65,
                        {"no file matches mnist_test.tfrecord",
                         "; name the shards of test, too, or set --eval_every=0"}));
}

TEST_F(BadInputTest, NamesFoldersThatCannotBeMade) {
  const std::string nowhere = train_file_ + "/x";
  for (const std::string flag : {"--train_dir=", "--log_dir="})
    EXPECT_TRUE(FailsWith(TrainAnEpoch({flag + nowhere}), 74, {nowhere, "cannot make the folder"}));
  ASSERT_EQ(TrainAnEpoch().exit_code, 0);
  for (const std::string flag : {"--eval_dir=", "--confusion_dir="}) {
    const ProcessResult eval = Carole(EvalWords(train_dir_, {"--eval_dir=", flag + nowhere}));
    EXPECT_TRUE(FailsWith(eval, 74, {nowhere, "cannot make the folder"})) << flag;
  }
  EXPECT_TRUE(FailsWith(Carole({"checkpoint", "convert", train_dir_, nowhere + "/model.h5"}), 74,
                        {nowhere, "cannot make the folder"}));
}

TEST_F(BadInputTest, NamesAnEmptyShard) {
  WriteFile(train_file_, "");
  EXPECT_TRUE(FailsWith(TrainAnEpoch(), 65, {train_file_, "empty"}));
}

TEST_F(BadInputTest, NamesATruncatedRecord) {
  WriteFile(train_file_, good().substr(0, good().size() - 5));
  const std::string offset = std::to_string(OffsetOfRecord(good(), 299));
  EXPECT_TRUE(FailsWith(TrainAnEpoch(), 65, {train_file_, "record 299", "byte " + offset}));
}

TEST_F(BadInputTest, NamesARecordWithABadLength) {
  const size_t offset = OffsetOfRecord(good(), 17);
  FlipBit(train_file_, offset);
  EXPECT_TRUE(
      FailsWith(TrainAnEpoch(), 65,
                {train_file_, "record 17", "byte " + std::to_string(offset), "length checksum"}));
}

TEST_F(BadInputTest, NamesARecordWithBadDataOnTwoRanks) {
  const size_t offset = OffsetOfRecord(good(), 17);
  FlipBit(train_file_, offset + 12 + 60);
  const ProcessResult result = TrainAnEpoch({"--collective_timeout=600"}, 2);
  EXPECT_TRUE(FailsWith(
      result, 65,
      {"[rank ", train_file_, "record 17", "byte " + std::to_string(offset), "data checksum"}));
  EXPECT_LT(result.seconds, 300) << "the job must not wait for the deadline";
}

TEST_F(BadInputTest, BudgetSkipsAndCountsOverAllRanks) {
  FlipBit(train_file_, OffsetOfRecord(good(), 17) + 12 + 60);
  FlipBit(train_file_, OffsetOfRecord(good(), 250));
  const ProcessResult enough = TrainAnEpoch({"--max_bad_records=2", "--max_number_of_steps=2"}, 2);
  EXPECT_EQ(enough.exit_code, 0) << enough.err;
  for (const char* text :
       {"skipped: ", "record 17 at byte ", "record 250 at byte ",
        "epoch 0: 298 records seen, 2 skipped (2 damaged records), 0 duplicated"})
    EXPECT_THAT(enough.err, ::testing::HasSubstr(text));
  train_dir_ += "_again";  // with seed 3 each rank has one bad record
  EXPECT_TRUE(
      FailsWith(TrainAnEpoch({"--max_bad_records=1", "--max_number_of_steps=2", "--seed=3"}, 2), 65,
                {"too many bad records: got 2 over all ranks", "--max_bad_records"}));
}

TEST_F(BadInputTest, BudgetCountsTheWholeEpochAcrossRestarts) {
  FlipBit(train_file_, OffsetOfRecord(good(), 17) + 12 + 60);
  FlipBit(train_file_, OffsetOfRecord(good(), 250));
  const Words few = {"--batch_size=10", "--max_bad_records=2"};
  const auto train = [&](int steps, const Words& more) {
    Words words = few;
    words.push_back("--max_number_of_steps=" + std::to_string(steps));
    words.insert(words.end(), more.begin(), more.end());
    return TrainAnEpoch(words);
  };
  for (int steps = 5; steps <= 30; steps += 5) {
    const ProcessResult run = train(steps, {});
    ASSERT_EQ(run.exit_code, 0) << run.err;
    if (steps == 30) {
      EXPECT_THAT(run.err, ::testing::HasSubstr("epoch 0: 298 records seen, 2 skipped (2 damaged "
                                                "records), 0 duplicated"));
    }
  }
  // The last checkpoint was written at the end of the epoch, so the next epoch begins with 0 bad
  // records.
  const ProcessResult next = train(60, {});
  EXPECT_EQ(next.exit_code, 0) << next.err;
  EXPECT_THAT(next.err, ::testing::HasSubstr("epoch 1: 298 records seen, 2 skipped"));
  train_dir_ += "_again";
  ProcessResult last;
  for (int steps = 5; steps <= 30 && last.exit_code <= 0; steps += 5)
    last = train(steps, {"--max_bad_records=1"});
  EXPECT_TRUE(FailsWith(last, 65, {"too many bad records: got 2 over all ranks"}));
}

// There is one bad record in the first batch of each rank. Records after the last batch that is
// wanted are not read.
TEST_F(BadInputTest, BudgetOfAnEvaluationCountsOverAllRanks) {
  ASSERT_EQ(TrainAnEpoch().exit_code, 0);
  const std::string file = data_dir_ + "/mnist_test.tfrecord";
  const std::string whole = ReadText(file);
  for (int record : {3, 20}) FlipBit(file, OffsetOfRecord(whole, record) + 12 + 60);
  const auto evaluate = [&](const Words& more, int ranks) {
    return Carole(EvalWords(train_dir_, more), ranks);
  };
  EXPECT_TRUE(FailsWith(evaluate({"--batch_size=16", "--max_bad_records=1"}, 2), 65,
                        {"too many bad records: got 2 over all ranks"}));
  EXPECT_EQ(evaluate({"--batch_size=16", "--max_bad_records=2"}, 2).exit_code, 0);
  WriteFile(file, whole);
  FlipBit(file, OffsetOfRecord(whole, 20) + 12 + 60);
  EXPECT_EQ(evaluate({"--batch_size=4", "--max_num_batches=1"}, 1).exit_code, 0);
}

TEST_F(BadInputTest, BudgetIsRefusedForReproducibleRuns) {
  EXPECT_TRUE(FailsWith(TrainAnEpoch({"--max_bad_records=1", "--reproducible"}), 64,
                        {"--max_bad_records", "--reproducible", "want 0"}));
}

// A budget is meant for a few bad records. A run or an evaluation without any good one is an error.
TEST_F(BadInputTest, RefusesDataWithoutAnyGoodRecord) {
  WriteFile(train_file_, "no records");
  EXPECT_TRUE(FailsWith(TrainAnEpoch({"--max_bad_records=5"}), 65, {"no usable record"}));
  WriteFile(data_dir_ + "/mnist_test.tfrecord", "no records");
  train_dir_ += "_good";
  RunToEnd({"dataset", "build", "--dataset_name=mnist", "--raw_dir", folder_ / "raw",
            "--dataset_dir", folder_ / "good"});
  RunToEnd(
      TrainWords(train_dir_, {"--dataset_dir=" + folder_ / "good", "--max_number_of_steps=1"}));
  EXPECT_TRUE(FailsWith(Carole(EvalWords(train_dir_, {"--max_bad_records=5"})), 65,
                        {"split: got no usable record"}));
}

TEST_F(BadInputTest, ValueOfABoolMayBeTheNextWord) {
  RunToEnd(TrainWords(train_dir_, {"--report", "false", "--max_number_of_steps=1"}));
  EXPECT_FALSE(std::filesystem::exists(train_dir_ + "/report.html"));
}

TEST_F(BadInputTest, RefusesFlagsThatWouldHaveNoEffect) {
  EXPECT_TRUE(FailsWith(TrainAnEpoch({"--keep_best"}), 64, {"--keep_best", "--eval_every"}));
  EXPECT_TRUE(FailsWith(Carole(EvalWords(train_dir_, {"--until_trained"})), 64,
                        {"--until_trained", "--eval_interval_secs"}));
}

TEST_F(BadInputTest, RefusesRemotePaths) {
  EXPECT_TRUE(FailsWith(TrainAnEpoch({"--log_dir=gs://bucket/run"}), 64,
                        {"--log_dir", "got gs://bucket/run", "mount"}));
}

TEST_F(BadInputTest, RefusesEmptyFolders) {
  EXPECT_TRUE(FailsWith(Carole({"dataset", "build", "--dataset_name=synthetic", "--dataset_dir="}),
                        64, {"--dataset_dir: empty"}));
  EXPECT_TRUE(FailsWith(Carole({"eval", "--checkpoint_path=", "--dataset_dir=" + folder_ / "data"}),
                        64, {"--checkpoint_path: empty"}));
}

TEST_F(BadInputTest, NamesALabelOutOfRange) {
  WriteGrayRecord(train_file_, 0x7f, 12);
  EXPECT_TRUE(FailsWith(TrainAnEpoch(), 65, {train_file_, "record 0", "label", "12"}));
  EXPECT_THAT(Carole({"doctor", "--dataset_name=mnist", "--dataset_dir=" + data_dir_}).out,
              ::testing::HasSubstr(
                  train_file_ + ": record 0 at byte 0: image/class/label: out of range: got 12"));
  // The doctor checks the last record of each shard as well.
  const std::string bad = ReadText(train_file_);
  WriteGrayRecord(train_file_, 0x7f, 2);
  std::ofstream(train_file_, std::ios::app) << bad;
  EXPECT_THAT(Carole({"doctor", "--dataset_name=mnist", "--dataset_dir=" + data_dir_}).out,
              ::testing::HasSubstr(train_file_ + ": record 1 at byte"));
}

TEST_F(BadInputTest, ReportsFullStandardOutput) {
  RunToEnd(TrainWords(train_dir_, {"--max_number_of_steps=1"}));
  std::string command;
  for (const std::string& word : CaroleWords(EvalWords(train_dir_))) command += "'" + word + "' ";
  EXPECT_TRUE(FailsWith(RunProcess({"sh", "-c", command + "> /dev/full"}), 74,
                        {"standard output", "No space left"}));
}

// Nobody writes to the pipe, so reading it would wait forever.
TEST_F(BadInputTest, RefusesAPipeInsteadOfAnImage) {
  RunToEnd(TrainWords(train_dir_, {"--max_number_of_steps=1"}));
  const std::string pipe = folder_ / "a.png";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const ProcessResult run = Carole({"predict", "--checkpoint_path=" + train_dir_, pipe});
  EXPECT_EQ(run.exit_code, 65) << run.err;
  EXPECT_THAT(run.err, ::testing::HasSubstr("not a regular file: got a folder, device or pipe"));
}

TEST_F(BadInputTest, RefusesAFileThatIsNoTfRecord) {
  WriteFile(train_file_, std::string(1000, 'x'));
  EXPECT_TRUE(FailsWith(TrainAnEpoch(), 65, {train_file_, "byte 0"}));
}

TEST_F(BadInputTest, RefusesASecondRunInOneFolder) {
  Subprocess first(CaroleWords(
      TrainWords(train_dir_, {"--max_number_of_steps=1000000", "--log_every_n_steps=1"})));
  ASSERT_TRUE(
      first.WaitUntil([&] { return first.err().find("global step 1:") != std::string::npos; }, 60));
  EXPECT_TRUE(FailsWith(TrainAnEpoch(), 78, {train_dir_}));
  first.Signal(SIGTERM);
  EXPECT_EQ(first.Wait().exit_code, 75);
}

// Returns the command on a file system without locks: each call of flock() and each lock of fcntl()
// fails as on NFS whose server has no lock manager.
Words WithoutLocks(const Words& words) {
  Words all{"/usr/bin/strace",          "-f", "-qq", "-o", "/dev/null", "-e", "trace=flock", "-e",
            "inject=flock:error=ENOLCK"};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

TEST_F(BadInputTest, TrainsWithAWarningWhereFilesCannotBeLocked) {
  if (!std::filesystem::exists("/usr/bin/strace"))
    GTEST_SKIP() << "skipped: strace is not installed";
  const Words killed = WithFault("0:3:backward:kill", CaroleWords(TrainWords(train_dir_)));
  const ProcessResult first = RunProcess(WithoutLocks(killed));
  EXPECT_EQ(first.exit_code, 137) << first.err;
  EXPECT_THAT(first.err, ::testing::ContainsRegex(
                             train_dir_ + ": this file system does not support locks \\(No locks "
                                          "available\\); make sure that only one run writes"));
  const ProcessResult second = RunProcess(WithoutLocks(CaroleWords(TrainWords(train_dir_))));
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_THAT(second.err, ::testing::HasSubstr("at step 3"));  // from the guardian
  RunToEnd(TrainWords(folder_ / "undisturbed"));
  EXPECT_EQ(DigestOf(train_dir_), DigestOf(folder_ / "undisturbed"));
}

TEST_F(BadInputTest, RefusesACheckpointOfAnotherNet) {
  const Words cifarnet = {"--model_name=cifarnet", "--max_number_of_steps=1"};
  ASSERT_EQ(TrainAnEpoch(cifarnet).exit_code, 0);
  EXPECT_TRUE(FailsWith(TrainAnEpoch(), 65, {CheckpointAt(1), "LeNet/"}));
  EXPECT_TRUE(FailsWith(Carole(EvalWords(CheckpointAt(1))), 65, {CheckpointAt(1), "LeNet/"}));
}

TEST_F(BadInputTest, SkipsATruncatedCheckpoint) {
  ASSERT_EQ(TrainAnEpoch({"--save_interval_secs=1e-9"}).exit_code, 0);
  const std::string digest = DigestOf(CheckpointAt(4));
  std::filesystem::resize_file(CheckpointAt(4), std::filesystem::file_size(CheckpointAt(4)) / 2);
  EXPECT_TRUE(FailsWith(Carole(EvalWords(CheckpointAt(4))), 65, {CheckpointAt(4)}));
  EXPECT_TRUE(FailsWith(Carole({"checkpoint", "verify", train_dir_}), 65, {CheckpointAt(4)}));
  // Training resumes from the checkpoint before and repeats the step.
  const ProcessResult again = TrainAnEpoch();
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, ::testing::ContainsRegex("W .*model.ckpt-4.h5"));
  EXPECT_THAT(again.err, ::testing::HasSubstr("resuming from " + CheckpointAt(3)));
  EXPECT_EQ(DigestOf(CheckpointAt(4)), digest);
}

TEST_F(BadInputTest, KilledRankEndsTheJob) {
  Subprocess job(CaroleWords(
      TrainWords(train_dir_, {"--max_number_of_steps=1000000", "--save_interval_secs=0.5",
                              "--log_every_n_steps=1", "--collective_timeout=600"}),
      3));
  ASSERT_TRUE(job.WaitUntil(
      [&] { return std::filesystem::exists(train_dir_) && DigestOf(train_dir_).size() == 16; }, 60))
      << job.err();
  const std::vector<pid_t> ranks = ProcessesWith(train_dir_);
  ASSERT_EQ(ranks.size(), 3U);
  kill(ranks.back(), SIGKILL);
  const ProcessResult result = job.Wait(100);  // it must not wait for the deadline
  EXPECT_FALSE(result.timed_out);
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, ::testing::ContainsRegex("rank [0-2] [^.]*signal 9"));
  EXPECT_THAT(ProcessesLeftWith(train_dir_), ::testing::IsEmpty());
  RunToEnd({"checkpoint", "verify", train_dir_});
}

}  // namespace
}  // namespace carole::testing
