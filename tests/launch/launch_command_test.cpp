// `carole launch` on what it cannot start: nothing is written or run, and the exit code says why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/subprocess.h"

namespace carole::testing {
namespace {

using Words = std::vector<std::string>;

TEST(LaunchCommand, BadInput) {
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
       "[launch] key: nowhere for the job's ssh key"},
      {{"--network=-v", "--", "train"}, 64, "[flags] --network: no interface: got \"-v\""},
      {{"--", "train", "--num_gpus=two"}, 64, "[flags] --num_gpus: no number: got two"},
  };
  for (const auto& test : cases) {
    Words words{"env", "-u", "TF_CONFIG", CAROLE_BINARY, "launch"};
    words.insert(words.end(), test.arguments.begin(), test.arguments.end());
    const ProcessResult result = RunProcess(words, 30);
    EXPECT_EQ(result.exit_code, test.exit_code) << test.message;
    EXPECT_THAT(result.err, ::testing::HasSubstr(test.message));
  }
}

TEST(LaunchCommand, HostileNames) {
  for (const char* name : {"-oProxyCommand=x", "a;rm -rf x", "$(id)", R"(a\nProxyCommand x)"}) {
    const std::string config = std::string(R"(--tf_config={"cluster": {"worker": [")") + name +
                               R"(:22", "h1:22"]}, "task": {"type": "worker", "index": 0}})";
    const ProcessResult result =
        RunProcess({CAROLE_BINARY, "launch", "--work_dir=/nowhere", config, "--", "train"}, 30);
    EXPECT_EQ(result.exit_code, 78) << name;
    EXPECT_THAT(result.err, ::testing::HasSubstr("[tf_config] cluster.worker[0]: bad host name"));
  }
}

}  // namespace
}  // namespace carole::testing
