// Tests `carole hostfile` as users run it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launch/cluster/golden_cases.h"
#include "tests/support/subprocess.h"

namespace carole::testing {
namespace {

using Words = std::vector<std::string>;

constexpr const char* kTfConfig =
    R"({"cluster": {"master": ["ip0:2222"], "ps": ["ip0:2223", "ip1:2223"], "worker": ["ip1:2222"]},)"
    R"( "task": {"type": "ps", "index": 1}, "environment": "cloud"})";

// Runs `carole hostfile`. Its environment has only these variables ("NAME=VALUE").
ProcessResult Hostfile(const Words& flags, const Words& variables = {}) {
  Words words{"env", "-i"};
  words.insert(words.end(), variables.begin(), variables.end());
  words.insert(words.end(), {CAROLE_BINARY, "hostfile"});
  words.insert(words.end(), flags.begin(), flags.end());
  return RunProcess(words, 30);
}

TEST(HostfileCommand, ReadsTfConfigFromEnvironmentFlagOrFile) {
  const TemporaryFolder folder;
  std::ofstream(folder / "tf_config.json") << kTfConfig;
  const std::string want = "ip0 slots=1\nip1 slots=1\n";
  for (const ProcessResult& result :
       {Hostfile({}, {std::string("TF_CONFIG=") + kTfConfig}),
        Hostfile({std::string("--tf_config=") + kTfConfig}, {"TF_CONFIG={}"}),
        Hostfile({"--tf-config=@" + folder / "tf_config.json"}, {"TF_CONFIG=broken"})}) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, want);
    EXPECT_EQ(result.err, "");
  }
}

TEST(HostfileCommand, PrintsThisMachineWithoutAJob) {
  EXPECT_EQ(Hostfile({"--num_gpus=2"}).out, "localhost slots=2\n");
  EXPECT_EQ(Hostfile({}, {"TF_CONFIG="}).out, "localhost slots=1\n");
}

TEST(HostfileCommand, PrintsAllFormats) {
  const std::string flag = std::string("--tf_config=") + kTfConfig;
  EXPECT_EQ(Hostfile({flag, "--format=host-list", "--num_gpus=8"}).out, "ip0:8,ip1:8\n");
  EXPECT_EQ(Hostfile({flag, "--format=ssh-config"}).out,
            "Host ip0\n  HostName ip0\n  Port 2222\nHost ip1\n  HostName ip1\n  Port 2222\n");
  const Json json = Json::parse(Hostfile({flag, "--format=json"}).out);
  EXPECT_EQ(json.at("ranks"), 2);
  EXPECT_EQ(json.at("me").at("type"), "ps");
}

TEST(HostfileCommand, PrintsTheSlurmAllocationWithoutTfConfig) {
  const Words job{"SLURM_JOB_NODELIST=n[08-09]", "SLURM_TASKS_PER_NODE=2,1"};
  EXPECT_EQ(Hostfile({}, job).out, "n08 slots=2\nn09 slots=1\n");
  EXPECT_EQ(Hostfile({"--num_gpus=4", "--format=host-list"}, job).out, "n08:4,n09:4\n");
  Words blank = job;
  blank.emplace_back("TF_CONFIG= ");
  EXPECT_EQ(Hostfile({}, blank).out, "n08 slots=2\nn09 slots=1\n");
  Words both = job;
  both.push_back(std::string("TF_CONFIG=") + kTfConfig);
  EXPECT_EQ(Hostfile({}, both).out, "ip0 slots=1\nip1 slots=1\n");
}

// On errors nothing is printed that mpirun could take for a hostfile.
TEST(HostfileCommand, RejectsBadInput) {
  const struct {
    Words flags;
    int exit_code;
    const char* message;
  } cases[] = {
      {{R"(--tf_config={"cluster": {"worker": ["-oProxyCommand=x:22"]}})"},
       78,
       "[tf_config] cluster.worker[0]: bad host name: got \"-oProxyCommand=x\""},
      {{"--tf_config=@/no/such/file"},
       74,
       "[tf_config] --tf_config @/no/such/file: cannot be read: No such file"},
      {{"--tf_config=@/"}, 74, "[tf_config] --tf_config @/: cannot be read: Is a directory"},
      {{"--tf_config=@/dev/zero"}, 78, "too long: got 1048577 bytes"},
      {{"--num_gpus=-1"}, 64, "[flags] --num_gpus: out of range: got -1, want 0 to 1024"},
      {{"--format=yaml"}, 64, "[flags] --format: no such format"},
  };
  for (const auto& test : cases) {
    const ProcessResult result = Hostfile(test.flags);
    EXPECT_EQ(result.exit_code, test.exit_code) << test.message;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, ::testing::HasSubstr(test.message));
  }
}

// Runs the program on each case of launch_errors.json.
TEST(HostfileCommand, ExitsWith78OnBadTfConfigs) {
  const TemporaryFolder folder;
  for (const Json& golden : ReadCases("launch_errors.json")) {
    std::ofstream(folder / "tf_config.json", std::ios::binary) << TfConfigText(golden);
    const ProcessResult result = Hostfile({"--tf_config=@" + folder / "tf_config.json"});
    EXPECT_EQ(result.exit_code, 78) << golden.at("name");
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, ::testing::HasSubstr(golden.at("message").get<std::string>()));
  }
}

}  // namespace
}  // namespace carole::testing
