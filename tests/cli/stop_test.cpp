// Requests to stop at any moment of a run of two ranks.
#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/cli/cli.h"

namespace carole::testing {
namespace {

using ::testing::HasSubstr;

class StopTest : public CliTest {
 protected:
  // Runs two ranks and sends the signal to both when the log shows the text `when`.
  ProcessResult StopAt(int signal, const std::string& when, const Words& more) {
    Words words = {"--max_number_of_steps=100000", "--log_every_n_steps=1"};
    words.insert(words.end(), more.begin(), more.end());
    Subprocess job(CaroleWords(TrainWords(train_dir_, words), 2));
    EXPECT_TRUE(job.WaitUntil([&] { return job.err().find(when) != std::string::npos; }, 60))
        << job.err();
    for (pid_t rank : ProcessesWith(train_dir_)) kill(rank, signal);
    return job.Wait();
  }
};

// Waiting OpenMP threads do not spin for long, unless the user's environment asks for it.
TEST_F(StopTest, WaitingThreadsSleep) {
  for (const std::string given : {"", "GOMP_SPINCOUNT=7", "OMP_WAIT_POLICY=active"}) {
    Words variables = {"-u", "OMP_WAIT_POLICY", "-u", "GOMP_SPINCOUNT"};
    if (!given.empty()) variables.push_back(given);
    Subprocess job(WithEnvironment(
        variables, CaroleWords(TrainWords(train_dir_, {"--max_number_of_steps=100000"}))));
    EXPECT_TRUE(
        job.WaitUntil([&] { return job.err().find("train_dir  ") != std::string::npos; }, 60))
        << job.err();
    for (pid_t process : ProcessesWith(train_dir_)) {
      const std::string environment = ReadText("/proc/" + std::to_string(process) + "/environ");
      EXPECT_EQ(environment.find("GOMP_SPINCOUNT=2000") != std::string::npos, given.empty());
      EXPECT_EQ(ReadText("/proc/" + std::to_string(process) + "/comm"), "carole\n");
      kill(process, SIGTERM);
    }
    EXPECT_EQ(job.Wait().exit_code, 75);
  }
}

TEST_F(StopTest, BeforeTheFirstStep) {
  EXPECT_TRUE(FailsWith(StopAt(SIGTERM, "train_dir  ", {}), 75, {"saving at step"}));
  EXPECT_THAT(DigestOf(train_dir_), ::testing::Not(HasSubstr("no checkpoint")));
}

// Batch systems send these signals before the time limit.
TEST_F(StopTest, ByOtherSignals) {
  for (const int signal : {SIGUSR2, SIGXCPU})
    EXPECT_TRUE(FailsWith(StopAt(signal, "global step 2", {}), 75, {"saving at step"}));
}

// Otherwise two runs would write one folder without noticing each other.
TEST_F(StopTest, ByAnotherRunInTheFolder) {
  Subprocess job(CaroleWords(
      TrainWords(train_dir_, {"--max_number_of_steps=100000", "--save_interval_secs=0.5"})));
  ASSERT_TRUE(job.WaitUntil([&] { return !DigestOf(train_dir_).starts_with("no"); }, 60))
      << job.err();
  std::filesystem::rename(train_dir_, train_dir_ + ".old");
  RunToEnd(TrainWords(train_dir_, {"--max_number_of_steps=1"}));
  EXPECT_TRUE(FailsWith(job.Wait(), 78, {train_dir_, "no longer locked by this run"}));
  EXPECT_TRUE(std::filesystem::exists(train_dir_ + "/model.ckpt-1.h5"));
}

// Whether both ranks have installed a handler for the signal. A guardian looks like its rank at
// first, so the numbers of the ranks are compared, too.
bool RanksCatch(int signal, const std::string& train_dir) {
  const auto proc = [](pid_t rank, const char* file) {
    return ReadText("/proc/" + std::to_string(rank) + "/" + file);
  };
  const std::vector<pid_t> ranks = ProcessesWith(train_dir);
  const auto is_there = [&](const char* number) {
    return std::ranges::any_of(
        ranks, [&](pid_t rank) { return proc(rank, "environ").find(number) != std::string::npos; });
  };
  const bool all_catch = std::ranges::all_of(ranks, [&](pid_t rank) {
    const std::string status = proc(rank, "status");
    const size_t at = status.find("SigCgt:");
    return at != std::string::npos &&
           (std::stoull(status.substr(at + 7), nullptr, 16) >> (signal - 1) & 1) != 0;
  });
  return ranks.size() == 2 && all_catch && is_there("OMPI_COMM_WORLD_RANK=0") &&
         is_there("OMPI_COMM_WORLD_RANK=1");
}

// The moments cover connecting, indexing the data, measuring, the first steps, evaluating and
// saving.
TEST_F(StopTest, AtAnyMoment) {
  for (const int milliseconds : {0, 30, 60, 100, 150, 200, 300, 450}) {
    SCOPED_TRACE(milliseconds);
    std::filesystem::remove_all(train_dir_);
    Subprocess job(CaroleWords(
        TrainWords(train_dir_, {"--max_number_of_steps=100000", "--save_interval_secs=0.05",
                                "--eval_every=5", "--keep_best"}),
        2));
    ASSERT_TRUE(job.WaitUntil([&] { return RanksCatch(SIGUSR1, train_dir_); }, 60)) << job.err();
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    for (pid_t rank : ProcessesWith(train_dir_)) kill(rank, SIGUSR1);
    EXPECT_TRUE(FailsWith(job.Wait(), 75, {"saving at step"}));
    RunToEnd({"checkpoint", "verify", train_dir_});
  }
}

TEST_F(StopTest, DuringAnEvaluationWithTheChosenExitCode) {
  for (const std::string code : {"9", "0"}) {
    const ProcessResult result =
        StopAt(SIGUSR1, "mnist test: 100 records", {"--eval_every=1", "--stop_exit_code=" + code});
    EXPECT_EQ(result.exit_code, std::stoi(code)) << result.err;
    EXPECT_THAT(result.err,
                HasSubstr("carole: exit " + code + " (saved; run the same command again"));
    EXPECT_THAT(result.err, HasSubstr("saving at step"));
  }
}

TEST_F(StopTest, WhileItSaves) {
  EXPECT_TRUE(FailsWith(StopAt(SIGINT, "Saving checkpoint", {"--save_interval_secs=1e-9"}), 75,
                        {"saving at step"}));
}

// srun --kill-on-bad-exit sends signals to the other ranks after the first rank has ended.
TEST_F(StopTest, KeepsItsExitCodeIfSignalsContinueUntilItsEnd) {
  Subprocess job(CaroleWords(TrainWords(train_dir_, {"--max_number_of_steps=100000"})));
  ASSERT_TRUE(
      job.WaitUntil([&] { return job.err().find("train_dir  ") != std::string::npos; }, 60));
  EXPECT_FALSE(job.WaitUntil([&] { return job.Signal(SIGTERM), false; }, 60));
  EXPECT_TRUE(FailsWith(job.Wait(), 75, {"saving at step"}));
}

// The terminal was closed, or Ctrl-C has ended the `tee` that reads the log.
TEST_F(StopTest, WhenItsTerminalOrReaderIsGone) {
  EXPECT_TRUE(FailsWith(StopAt(SIGHUP, "train_dir  ", {}), 75, {"saving at step"}));
  std::filesystem::remove_all(train_dir_);
  std::string train;
  for (const std::string& word :
       CaroleWords(TrainWords(train_dir_, {"--max_number_of_steps=3", "--log_every_n_steps=1"})))
    train += "'" + word + "' ";
  EXPECT_EQ(RunProcess({"bash", "-c", train + "2>&1 | true; exit ${PIPESTATUS[0]}"}).exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(train_dir_ + "/model.ckpt-3.h5"));
}

TEST_F(StopTest, AtItsTimeLimit) {
  const Words steps = {"--max_number_of_steps=100000", "--max_time=1s"};
  EXPECT_TRUE(FailsWith(Carole(TrainWords(train_dir_, steps), 2), 75, {"saving at step"}));
}

TEST_F(StopTest, BeforeSlurmEndsTheJob) {
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  const Words words = CaroleWords(
      TrainWords(train_dir_, {"--max_number_of_steps=100000", "--stop_before_job_end=59"}));
  const ProcessResult result =
      RunProcess(WithEnvironment({"SLURM_JOB_END_TIME=" + std::to_string(now + 60)}, words));
  EXPECT_TRUE(FailsWith(result, 75, {"saving at step"}));
  EXPECT_THAT(result.err, HasSubstr("the job ends in"));
  const Words one_step = TrainWords(folder_ / "other", {"--max_number_of_steps=1"});
  const ProcessResult unread =
      RunProcess(WithEnvironment({"SLURM_JOB_END_TIME=soon"}, CaroleWords(one_step)));
  EXPECT_THAT(unread.err, HasSubstr("SLURM_JOB_END_TIME: got soon, want seconds since 1970"));
}

}  // namespace
}  // namespace carole::testing
