// Tests the texts that a job passes to ssh, sshd and mpirun, and its end markers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "launch/cluster/tf_config.h"
#include "launch/job/end_markers.h"
#include "launch/job/mpirun.h"
#include "launch/job/ssh.h"
#include "src/core/error.h"
#include "tests/launch/cluster/fake_environment.h"
#include "tests/support/text_of.h"

namespace carole::launch {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

Cluster ThreeHosts() {
  return ParseTfConfig(
      R"({"cluster": {"chief": ["10.0.0.1:2222"], "ps": ["10.0.0.1:2223"],
                      "worker": ["h1:2222", "h1:2224", "[fd77::2]:22"]}})",
      0);
}

TEST(JobText, HostfileListsTheFirstHostAsLocalhost) {
  Cluster cluster = ThreeHosts();
  EXPECT_EQ(JobHostfile(cluster), "localhost slots=1\nt1 slots=2\nt2 slots=1\n");
  cluster.hosts.erase(cluster.hosts.begin() + 1);  // a lost host: the others keep their aliases
  cluster.hosts[1].first_rank = 1;
  EXPECT_EQ(JobHostfile(cluster), "localhost slots=1\nt2 slots=1\n");
}

TEST(JobText, SshConfigHasEveryTaskAndHost) {
  const PrivateFolder folder;
  const std::string text = JobSshConfig(ThreeHosts(), "me", folder);
  EXPECT_THAT(text, HasSubstr("Host task+worker-1\n  HostName h1\n  Port 2224\n"));
  EXPECT_THAT(text, HasSubstr("Host task+ps-0\n  HostName 10.0.0.1\n  Port 2223\n"));
  EXPECT_THAT(text, HasSubstr("Host t1\n  HostName h1\n  Port 2222\n"));
  EXPECT_THAT(text, HasSubstr("Host t2\n  HostName fd77::2\n  Port 22\n"));
  EXPECT_THAT(text, HasSubstr("StrictHostKeyChecking yes"));
  EXPECT_THAT(text, HasSubstr("UserKnownHostsFile " + folder / "known_hosts"));
}

TEST(JobText, SshdTrustsOnlyTheJobsKey) {
  const PrivateFolder folder;
  EXPECT_EQ(KnownHosts("ssh-ed25519 AAAA"), "carole-job ssh-ed25519 AAAA\n");
  EXPECT_EQ(AuthorizedKeys("ssh-ed25519 AAAA"), "restrict ssh-ed25519 AAAA\n");
  const std::string text =
      SshdConfig(2224, "me", folder, {"PATH=/a b:/c", "OMP_X=\"", "OMP_Y=1\nPort 1"});
  EXPECT_THAT(text, HasSubstr("Port 2224\n"));
  EXPECT_THAT(text, HasSubstr("AllowUsers me\n"));
  EXPECT_THAT(text, HasSubstr("SetEnv CAROLE_LAUNCH_DIR=" + folder.path().string() +
                              " \"PATH=/a b:/c\"\n"));
  EXPECT_THAT(text, Not(HasSubstr("OMP_")));
  EXPECT_EQ(std::filesystem::status(folder.path()).permissions(),
            std::filesystem::perms::owner_all);
}

MpirunOptions Options() {
  return {.mpirun = "/usr/bin/mpirun",
          .hostfile = "/tmp/h",
          .ranks = 3,
          .command = {"/opt/carole", "train", "--train_dir=$(id); rm -rf x"}};
}

TEST(JobText, MpirunNeedsNoSshOnOneHost) {
  EXPECT_THAT(MpirunCommand(Options()),
              ElementsAre("/usr/bin/mpirun", "--hostfile", "/tmp/h", "-n", "3", "--map-by", "slot",
                          "--bind-to", "none", "--mca", "btl_base_warn_component_unused", "0",
                          "/opt/carole", "train", "--train_dir=$(id); rm -rf x"));
}

TEST(JobText, MpirunBindsRanksOfOneMachineIfNoCoreStaysIdle) {
  const auto words = [](const CoreBinding& binding) {
    return MpirunCommand(
        {.mpirun = "mpirun", .ranks = 4, .binding = binding, .command = {"carole"}});
  };
  EXPECT_THAT(
      words(ChooseBinding(4, 8, 8)),
      ElementsAre("mpirun", "-n", "4", "--map-by", "slot:PE=2", "--bind-to", "core:if-supported",
                  "--mca", "btl_base_warn_component_unused", "0", "carole"));
  for (const auto& [usable, machine] : {std::pair(6, 6), std::pair(4, 8)})
    EXPECT_THAT(words(ChooseBinding(4, usable, machine)),
                ElementsAre("mpirun", "-n", "4", "--map-by", "slot", "--bind-to", "none", "--mca",
                            "btl_base_warn_component_unused", "0", "carole"));
  EXPECT_THAT(words(ChooseBinding(4, 2, 2)),
              IsSupersetOf({"--oversubscribe", "--bind-to", "none"}));
}

TEST(JobText, MpirunUsesTheJobsSshOnSeveralHosts) {
  MpirunOptions options = Options();
  options.ssh = "/usr/bin/ssh";
  options.ssh_config = "/tmp/c";
  options.is_root = true;
  options.network = "eth1,10.0.0.0/8";
  options.ports = "41000-41099";
  options.exported = {"CAROLE_LOG_ALL_RANKS"};
  const auto arguments = MpirunCommand(options);
  EXPECT_THAT(arguments,
              IsSupersetOf({"--allow-run-as-root", "plm_rsh_agent", "/usr/bin/ssh", "plm_rsh_args",
                            "-F /tmp/c", "oob_tcp_keepalive_time", "regx"}));
  EXPECT_THAT(arguments, IsSupersetOf({"btl_tcp_if_include", "oob_tcp_if_include", "41000-41049",
                                       "btl_tcp_port_min_v4", "41050", "50", "-x"}));
}

TEST(JobText, NcclUsesTheInterfaceOfNetwork) {
  MpirunOptions options = Options();
  const std::string eth1 = "NCCL_SOCKET_IFNAME==eth1";
  options.network = "eth1";
  EXPECT_THAT(MpirunCommand(options), Contains(eth1));
  options.exported = {"NCCL_SOCKET_IFNAME"};  // set by the user
  EXPECT_THAT(MpirunCommand(options), Not(Contains(eth1)));
  options = Options();
  options.network = "10.0.0.0/8";
  EXPECT_THAT(MpirunCommand(options), Not(Contains(HasSubstr("NCCL_SOCKET_IFNAME"))));
}

TEST(JobText, RejectsBadNetworkAndPorts) {
  for (const char* network : {"-v", "eth0;id", "a b", "$(id)", "eth0\n"}) {
    MpirunOptions options = Options();
    options.network = network;
    EXPECT_THAT(TextOf<UsageError>([&] { MpirunCommand(options); }),
                HasSubstr("\x1f$(network): bad interface"))
        << network;
  }
  for (const char* ports : {"x", "41000", "41000-", "-1-50", "80-200", "41000-41005", "41000-70000",
                            "41000-41099 ", "41099-41000"}) {
    MpirunOptions options = Options();
    options.ports = ports;
    EXPECT_THAT(TextOf<UsageError>([&] { MpirunCommand(options); }),
                HasSubstr("\x1f$(ports): bad range"))
        << ports;
  }
}

TEST(JobText, AdviceOnAKeyFitsTheProblem) {
  const PrivateFolder folder;
  EXPECT_THAT(
      TextOf<DiskError>([&] { InstallPrivateKey("/nowhere/key", true, folder); }),
      HasSubstr("/nowhere/key: cannot be found: No such file or directory; check \x1f$(ssh_key)"));
  EXPECT_THAT(TextOf<DiskError>([&] { InstallPrivateKey("/nowhere/key", false, folder); }),
              HasSubstr("check \x1f$(work_dir)"));
  WritePrivateFile(folder / "empty", "");
  EXPECT_THAT(TextOf<ConfigError>([&] { InstallPrivateKey(folder / "empty", true, folder); }),
              HasSubstr("empty: is empty; want a private key of ssh"));
}

TEST(JobText, RestartsOnlyAfterALoss) {
  for (int code : {69, 137, 205, 213, 255}) EXPECT_TRUE(IsWorthRestarting(code)) << code;
  for (int code : {0, 1, 64, 65, 70, 74, 75, 78, 139, 143})
    EXPECT_FALSE(IsWorthRestarting(code)) << code;
  EXPECT_EQ(JobExitCode(205), 69);
  EXPECT_EQ(JobExitCode(213), 69);
  EXPECT_EQ(JobExitCode(255), 69);
  EXPECT_EQ(JobExitCode(75), 75);
  EXPECT_EQ(JobExitCode(137), 137);
}

TEST(JobEndDetector, IgnoresMarkersOfEarlierJobs) {
  const PrivateFolder folder;
  const std::string run = folder / "not/there/yet";
  const JobEndDetector early(run);
  EXPECT_FALSE(early.HasEnded());
  WriteJobEndMarker(run, 0);
  EXPECT_TRUE(early.HasEnded());
  const JobEndDetector late(run);
  EXPECT_FALSE(late.HasEnded()) << "the marker of an earlier job";
  WriteJobEndMarker(run, 0);
  EXPECT_TRUE(late.HasEnded());
  EXPECT_NO_THROW(WriteJobEndMarker("/proc/nowhere", 0));
}

TEST(RanksEndMarker, IsWrittenByRankZero) {
  const PrivateFolder folder;
  const std::string marker = folder / "marker";
  const auto write = [](const std::string& path, const std::string& rank) {
    WriteRanksEndMarker(testing::FakeEnvironment({{kRanksEndVariable, path},
                                                  {"OMPI_COMM_WORLD_RANK", rank},
                                                  {"OMPI_COMM_WORLD_SIZE", "2"},
                                                  {"OMPI_COMM_WORLD_LOCAL_RANK", rank},
                                                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}));
  };
  write(marker, "1");
  EXPECT_FALSE(std::filesystem::exists(marker));
  write(marker, "0");
  EXPECT_TRUE(std::filesystem::exists(marker));
  ::testing::internal::CaptureStderr();
  write(folder / "missing/marker", "0");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("missing/marker: cannot be written: No such file or directory"));
}

TEST(JobEndMarker, CanBeReadByOtherUsers) {
  const PrivateFolder folder;
  WriteJobEndMarker(folder.path(), 0);
  std::ofstream(folder / "any") << "file";
  EXPECT_EQ(std::filesystem::status(folder / ".job_end").permissions(),
            std::filesystem::status(folder / "any").permissions());
}

}  // namespace
}  // namespace carole::launch
