// Requests to stop, at any moment of a run of two ranks.
#include <chrono>

#include "tests/cli/cli.h"

namespace carole::testing {
namespace {

using ::testing::HasSubstr;

class StopTest : public CliTest {
 protected:
  // Sends the signal to every rank when the log says `when`; a job of two ranks.
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

TEST_F(StopTest, BeforeTheFirstStep) {
  EXPECT_TRUE(FailsWith(StopAt(SIGTERM, "train_dir  ", {}), 75, {"saving at step"}));
  EXPECT_THAT(DigestOf(train_dir_), ::testing::Not(HasSubstr("no checkpoint")));
}

TEST_F(StopTest, DuringAnEvaluationWithTheCodeThatWasAskedFor) {
  const ProcessResult result =
      StopAt(SIGUSR1, "mnist test: 100 records", {"--eval_every=1", "--stop_exit_code=9"});
  EXPECT_EQ(result.exit_code, 9) << result.err;
  EXPECT_THAT(result.err, HasSubstr("saving at step"));
}

TEST_F(StopTest, WhileItSaves) {
  EXPECT_TRUE(FailsWith(StopAt(SIGINT, "Saving checkpoint", {"--save_interval_secs=0"}), 75,
                        {"saving at step"}));
}

TEST_F(StopTest, WhenItsTimeIsOver) {
  const Words steps = {"--max_number_of_steps=100000", "--max_time=1s"};
  EXPECT_TRUE(FailsWith(Carole(TrainWords(train_dir_, steps), 2), 75, {"saving at step"}));
}

TEST_F(StopTest, BeforeSlurmEndsTheJob) {
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  Words words = CaroleWords(
      TrainWords(train_dir_, {"--max_number_of_steps=100000", "--stop_before_job_end=59"}));
  words.insert(words.begin(), {"env", "SLURM_JOB_END_TIME=" + std::to_string(now + 60)});
  const ProcessResult result = RunProcess(words);
  EXPECT_TRUE(FailsWith(result, 75, {"saving at step"}));
  EXPECT_THAT(result.err, HasSubstr("the job ends in"));
}

}  // namespace
}  // namespace carole::testing
