// Tests `carole launch` with jobs that it cannot start: it writes and runs nothing, and its exit
// code says why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/launch/cluster/golden_cases.h"
#include "tests/support/subprocess.h"

namespace carole::testing {
namespace {

using Words = std::vector<std::string>;

TEST(LaunchCommand, RejectsBadInput) {
  const std::string two = R"(--tf_config={"cluster": {"chief": ["h0:1"], "worker": ["h1:1"]})";
  const struct {
    Words arguments;
    int exit_code;
    const char* message;
  } cases[] = {
      {{}, 64, "[launch] command: got none, want carole launch [FLAGS] -- train [FLAGS OF TRAIN]"},
      {{"--", "eval"}, 64, "[launch] command: got \"eval\""},
      {{two + "}", "--", "train"}, 78, "[tf_config] task: missing"},
      {{two + R"(, "task": {"type": "chief", "index": 0}})", "--", "train"},
       78,
       "[launch] --work_dir, --ssh_key: both are missing"},
      // A chief without workers needs no key.
      {{R"(--tf_config={"cluster": {"chief": ["h0:1"], "ps": ["h1:1"], "evaluator": ["h2:1"]},)"
        R"( "task": {"type": "chief", "index": 0}})",
        "--", "train", "--dataset_name=mnist", "--dataset_dir=/nowhere", "--train_dir="},
       65,
       "[io.datasets] --dataset_dir /nowhere: cannot be read"},
      {{R"(--tf_config={"cluster": {"chief": ["192.0.2.7:1"], "worker": ["h1:1"]},)"
        R"( "task": {"type": "chief", "index": 0}})",
        "--", "train"},
       78,
       "192.0.2.7 is not an address of this machine"},
      {{"--network=-v", "--", "train"}, 64, "[flags] --network: bad interface: got \"-v\""},
      {{"--", "train", "--max_restarts=x"}, 64, "carole launch: --max_restarts"},
      {{"--", "train", "--num_gpus=two"},
       64,
       "--ranks: got two, want a whole number of at least 0"},
      {{"--", "train", "--num_g", "two"}, 64, "[flags] --num_g: carole train has no such flag"},
      {{"--", "train", "--recipe=imagenet_main", "--num_g", "two"},
       64,
       "--ranks: got two, want a whole number of at least 0"},
      {{"--", "train", "--recipe=imagenet_main", "--batch_norm=1"}, 64, "is ambiguous"},
      {{"--", "train", "--recipe=unheard_of"}, 64, "[flags] --recipe: no such recipe"},
      {{"--", "train", "--config=/nowhere.toml"}, 64, "/nowhere.toml"},
  };
  for (const auto& test : cases) {
    Words words{"env", "-u", "TF_CONFIG", CAROLE_BINARY, "launch"};
    words.insert(words.end(), test.arguments.begin(), test.arguments.end());
    const ProcessResult result = RunProcess(words, 30);
    EXPECT_EQ(result.exit_code, test.exit_code) << test.message;
    EXPECT_THAT(result.err, ::testing::HasSubstr(test.message));
  }
}

TEST(LaunchCommand, PrintsItsOwnHelp) {
  for (const Words& words :
       {Words{"--help"}, Words{"-h"}, Words{"--helpfull"}, Words{"--work_dir=x", "--help"},
        Words{"--help", "--", "train", "--batch_size=8"}}) {
    Words command{CAROLE_BINARY, "launch"};
    command.insert(command.end(), words.begin(), words.end());
    const ProcessResult result = RunProcess(command, 30);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, ::testing::HasSubstr("--max_restarts")) << words[0];
  }
}

TEST(LaunchCommand, PrintsTheHelpOfTrain) {
  const ProcessResult result =
      RunProcess({CAROLE_BINARY, "launch", "--", "train", "--ps=idle", "--help"}, 30);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, ::testing::HasSubstr("--max_number_of_steps"));
}

// The job has two hosts. It ends early, because no folder for its key is given.
TEST(LaunchCommand, LeavesTheEvaluationOfARecipeToAnEvaluator) {
  const std::string two = R"(--tf_config={"cluster": {"chief": ["h0:1"], "worker": ["h1:1"]},)"
                          R"("task": {"type": "chief", "index": 0}})";
  const struct {
    Words training;
    bool is_left_to_evaluator;
  } cases[] = {
      {{"--recipe=imagenet_main"}, true},
      {{"--recipe=imagenet_main", "--epochs=1"}, false},
      {{"--recipe=imagenet_main", "--eval_every=5"}, false},
      {{"--recipe=imagenet_main", "--keep_best"}, false},
      {{"--recipe=imagenet_main", "--eval_every=0"}, false},
      {{"--recipe=mnist_dist"}, false},
      {{"--epochs_per_eval=1"}, false},
  };
  for (const auto& test : cases) {
    Words words{CAROLE_BINARY, "launch", two, "--", "train", "--output_dir=/nowhere"};
    words.insert(words.end(), test.training.begin(), test.training.end());
    const ProcessResult result = RunProcess(words, 30);
    EXPECT_EQ(result.exit_code, 78) << result.err;
    EXPECT_EQ(result.err.find("none is an evaluator, so nothing is evaluated") != std::string::npos,
              test.is_left_to_evaluator)
        << test.training.back();
  }
}

TEST(LaunchCommand, RejectsHostileHostNames) {
  for (const char* name : {"-oProxyCommand=x", "a;rm -rf x", "$(id)", R"(a\nProxyCommand x)"}) {
    const std::string config = std::string(R"(--tf_config={"cluster": {"worker": [")") + name +
                               R"(:22", "h1:22"]}, "task": {"type": "worker", "index": 0}})";
    const ProcessResult result =
        RunProcess({CAROLE_BINARY, "launch", "--work_dir=/nowhere", config, "--", "train"}, 30);
    EXPECT_EQ(result.exit_code, 78) << name;
    EXPECT_THAT(result.err, ::testing::HasSubstr("[tf_config] cluster.worker[0]: bad host name"));
  }
}

// Runs the program on each case of launch_errors.json under strace, which records the programs that
// it starts.
TEST(LaunchCommand, StartsNoProgramOnBadTfConfigs) {
  if (!std::filesystem::exists("/usr/bin/strace"))
    GTEST_SKIP() << "skipped: strace is not installed";
  const TemporaryFolder folder;
  const std::string trace = folder / "trace";
  for (const Json& golden : ReadCases("launch_errors.json")) {
    std::ofstream(folder / "tf_config.json", std::ios::binary) << TfConfigText(golden);
    const ProcessResult result =
        RunProcess({"/usr/bin/strace", "-f", "-qq", "-e", "trace=execve", "-o", trace,
                    CAROLE_BINARY, "launch", "--tf_config=@" + folder / "tf_config.json",
                    "--work_dir=" + folder / "work", "--", "train"},
                   30);
    EXPECT_EQ(result.exit_code, 78) << golden.at("name");
    EXPECT_THAT(result.err, ::testing::HasSubstr(golden.at("message").get<std::string>()));
    const std::string started = ReadText(trace);
    EXPECT_THAT(started, ::testing::HasSubstr("execve(\"" CAROLE_BINARY "\"")) << golden.at("name");
    EXPECT_EQ(std::count(started.begin(), started.end(), '\n'), 1) << started;
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "work"));
}

}  // namespace
}  // namespace carole::testing
