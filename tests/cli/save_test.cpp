// What a run knows about its saves: the ledger of epochs, the time that a save takes, and what a
// loss would cost.
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>

#include "tests/cli/cli.h"

namespace carole::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class SaveTest : public CliTest {};

// The data has 300 records. The first epoch is spread over two runs: 5 batches of 16 on two ranks,
// then 28 batches of 8 on one, the last of which is short.
TEST_F(SaveTest, AResumedRunContinuesTheLedger) {
  RunToEnd(TrainWords(train_dir_, {"--max_number_of_steps=5"}), 2);
  const ProcessResult first = RunToEnd({"checkpoint", "inspect", train_dir_});
  EXPECT_THAT(first.out,
              ContainsRegex("\nledger \\(0 epochs ended: 0 records seen, .*\\)\n  epoch 0: 80 "
                            "records seen, 0 skipped, 0 duplicated, of 300, hash [0-9a-f]{16}\n"));
  const ProcessResult second = RunToEnd(TrainWords(train_dir_, {"--max_number_of_steps=35"}));
  EXPECT_THAT(second.err, AllOf(HasSubstr("epoch 0 continues: its first 80 records were seen once"),
                                HasSubstr("epoch 0: 300 records seen, 0 skipped, 0 duplicated\n"),
                                Not(HasSubstr("as planned")), Not(HasSubstr("not each record"))));
  const auto json =
      nlohmann::json::parse(RunToEnd({"checkpoint", "inspect", "--json", train_dir_}).out);
  const auto& ledger = json.at("ledger");
  EXPECT_EQ(ledger.at("total").at("seen"), 300);
  EXPECT_EQ(ledger.at("epochs").at(0).at("missing"), 0);
  EXPECT_EQ(ledger.at("current").at("seen"), 16);
  EXPECT_THAT(ReadText(train_dir_ + "/report.html"),
              AllOf(HasSubstr("<figure id=\"ledger\">"),
                    ContainsRegex("<td>0</td><td>300</td><td>0</td><td>0</td><td>0</td>"),
                    HasSubstr("16 of 300 records")));
}

TEST_F(SaveTest, MeasuresSavesAndTheMarginBeforeTheEndOfTheJob) {
  const auto end = std::chrono::duration_cast<std::chrono::seconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count() +
                   24 * 3600;
  Subprocess job(WithEnvironment(
      {"SLURM_JOB_END_TIME=" + std::to_string(end), "CAROLE_GRACE_SECONDS=0.001"},
      CaroleWords(
          TrainWords(train_dir_, {"--max_number_of_steps=100000", "--save_interval_secs=0.2"}),
          2)));
  const auto has = [&](const char* text) { return job.err().find(text) != std::string::npos; };
  EXPECT_TRUE(job.WaitUntil(
      [&] {
        return has("run stops that long before the end of the job") && has("would have cost");
      },
      60))
      << job.err();
  for (const pid_t rank : ProcessesWith(train_dir_)) kill(rank, SIGUSR1);
  const ProcessResult result = job.Wait();
  EXPECT_EQ(result.exit_code, 75) << result.err;
  EXPECT_THAT(result.err, HasSubstr("carole launch --grace_seconds: too short to save after a "
                                    "signal: got 0.001 s, want"));
  EXPECT_THAT(result.err, ContainsRegex("step [0-9]+: training stopped for [0-9.]+ s to save; "
                                        "before, a loss would have cost [0-9]+ steps, [0-9.]+ s"));
}

TEST_F(SaveTest, ChoosesTheInterval) {
  const ProcessResult run =
      RunToEnd(TrainWords(train_dir_, {"--max_number_of_steps=2", "--save_interval_secs=auto",
                                       "--mean_time_between_failures=10d"}));
  EXPECT_THAT(run.err,
              ContainsRegex("--save_interval_secs=auto: [0-9]+ s between saves: .*one of 1 "
                            "hosts is expected to fail every 240.0 h"));
  EXPECT_TRUE(FailsWith(Carole(TrainWords(train_dir_, {"--save_interval_secs=soon"})), 64,
                        {"--save_interval_secs", "got soon, want auto or a number of at least 0"}));
  EXPECT_TRUE(FailsWith(Carole(TrainWords(train_dir_, {"--save_interval_secs=-1"})), 64,
                        {"--save_interval_secs", "got -1, want auto or a number of at least 0"}));
  EXPECT_TRUE(FailsWith(Carole(TrainWords(train_dir_, {"--mean_time_between_failures=0"})), 64,
                        {"--mean_time_between_failures", "got 0"}));
}

}  // namespace
}  // namespace carole::testing
