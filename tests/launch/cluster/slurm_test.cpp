#include "launch/cluster/slurm.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/cluster/hostfile.h"
#include "src/core/error.h"
#include "tests/launch/cluster/fake_environment.h"
#include "tests/support/text_of.h"

namespace carole::launch {
namespace {

using carole::testing::FakeEnvironment;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

TEST(NodeList, ExpandsBracketsAndRanges) {
  const std::pair<const char*, std::vector<std::string>> cases[] = {
      {"login", {"login"}},
      {"n[0-3,7],login", {"n0", "n1", "n2", "n3", "n7", "login"}},
      {"r[08-11]", {"r08", "r09", "r10", "r11"}},
      {"r[1-2]n[0-1]", {"r1n0", "r1n1", "r2n0", "r2n1"}},
      {"a[1]-ib.Cluster,b", {"a1-ib.Cluster", "b"}},
      {"10.0.0.[1-2]", {"10.0.0.1", "10.0.0.2"}},
      {"gpu_[1-2],my_node-", {"gpu_1", "gpu_2", "my_node-"}},
  };
  for (const auto& [text, nodes] : cases)
    EXPECT_THAT(ExpandNodeList("[slurm] X", text), ElementsAreArray(nodes)) << text;
}

TEST(NodeList, RejectsMalformedLists) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "no host name: got \"\", want a name or an address"},
      {"n1,", "no host name: got \"\", want a name or an address"},
      {"n[1", "bad list at character 4: got \"n[1\", want ']'"},
      {"n[]", "bad list at character 3: got \"n[]\", want a number of 1 to 9 digits"},
      {"n[a]", "bad list at character 3: got \"n[a]\", want a number of 1 to 9 digits"},
      {"n[3-1]",
       "bad list at character 6: got \"n[3-1]\", want an ascending range and at most 65536 "
       "nodes"},
      {"n[0-65536]",
       "bad list at character 10: got \"n[0-65536]\", want an ascending range and at most 65536 "
       "nodes"},
      {"n[0-999][0-999]",
       "bad list at character 16: got \"n[0-999][0-999]\", want at most 65536 nodes"},
      {"n[0-1]]", "bad list at character 7: got \"n[0-1]]\", want ','"},
      {"n[0-1,1]", "duplicate node: got n1 twice, want it once"},
      {"$(id)", "bad host name: got \"$(id)\", want letters, digits, '-', '_' and '.' only"},
      {"-v", "bad host name: got \"-v\", want a name that does not begin with '-'"},
  };
  for (const auto& [text, message] : cases)
    EXPECT_EQ(TextOf<ConfigError>([&text = text] { ExpandNodeList("[slurm] X", text); }),
              fmt::format("[slurm] X: {}", message))
        << text;
}

TEST(Counts, ExpandsRepeatedCounts) {
  EXPECT_THAT(ExpandCounts("", "2(x3),1"), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(ExpandCounts("", "16"), ElementsAre(16));
  EXPECT_THAT(ExpandCounts("", "1,2"), ElementsAre(1, 2));
}

TEST(Counts, RejectsMalformedCounts) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "bad list at character 1: got \"\", want a number of 1 to 9 digits"},
      {"2(x3", "bad list at character 5: got \"2(x3\", want ')'"},
      {"2x3", "bad list at character 2: got \"2x3\", want ','"},
      {"0", "bad list at character 2: got \"0\", want 1 to 65536 tasks on a node"},
      {"2(x99999999)", "bad list at character 13: got \"2(x99999999)\", want at most 65536 nodes"},
      {"65536(x17)", "bad list at character 11: got \"65536(x17)\", want at most 1048576 tasks"},
  };
  for (const auto& [text, message] : cases)
    EXPECT_EQ(TextOf<ConfigError>([&text = text] { ExpandCounts("[slurm] X", text); }),
              fmt::format("[slurm] X: {}", message))
        << text;
}

TEST(Slurm, FindsNoClusterOutsideOfAJob) {
  EXPECT_FALSE(ReadSlurmCluster(FakeEnvironment({}), 0).has_value());
}

TEST(Slurm, ReadsTheAllocationInABatchScript) {
  const FakeEnvironment batch({{"SLURM_JOB_NODELIST", "n[0-2]"},
                               {"SLURM_TASKS_PER_NODE", "2(x2),1"},
                               {"SLURM_PROCID", "0"},
                               {"SLURM_NTASKS", "5"}});
  const std::optional<Cluster> cluster = ReadSlurmCluster(batch, 0);
  ASSERT_TRUE(cluster.has_value());
  EXPECT_EQ(ClusterText(*cluster, Format::kHostfile), "n0 slots=2\nn1 slots=2\nn2 slots=1\n");
  EXPECT_EQ(ClusterText(*ReadSlurmCluster(batch, 4), Format::kHostList), "n0:4,n1:4,n2:4\n");
  EXPECT_FALSE(cluster->me.has_value());  // the batch script is not a rank
}

TEST(Slurm, RejectsHeterogeneousJobs) {
  const FakeEnvironment batch({{"SLURM_JOB_NODELIST", "n0"}, {"SLURM_HET_SIZE", "2"}});
  EXPECT_EQ(TextOf<ConfigError>([&] { ReadSlurmCluster(batch, 0); }),
            "[slurm] SLURM_HET_SIZE: heterogeneous job: got 2 groups, want 1; start the ranks "
            "with srun --mpi=pmix --het-group=0-1");
}

TEST(Slurm, ReadsTheNodesOfAStep) {
  const FakeEnvironment rank({{"SLURM_JOB_NODELIST", "n[0-3]"},
                              {"SLURM_TASKS_PER_NODE", "2(x4)"},
                              {"SLURM_STEP_NODELIST", "n[1,3]"},
                              {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
                              {"SLURM_PROCID", "1"},
                              {"SLURM_LOCALID", "0"},
                              {"SLURM_NODEID", "1"}});
  const std::optional<Cluster> cluster = ReadSlurmCluster(rank, 0);
  ASSERT_TRUE(cluster.has_value() && cluster->me.has_value());
  EXPECT_EQ(ClusterText(*cluster, Format::kHostList), "n1:2,n3:2\n");
  EXPECT_EQ(cluster->me->rank, 1);
  EXPECT_EQ(cluster->me->host, "n3");  // srun --distribution=cyclic
}

// With LaunchParameters=use_interactive_step, the shell of salloc runs in a step of one task.
TEST(Slurm, ReadsTheWholeAllocationInTheShellOfSalloc) {
  const FakeEnvironment shell({{"SLURM_JOB_NODELIST", "n[0-3]"},
                               {"SLURM_TASKS_PER_NODE", "2(x4)"},
                               {"SLURM_STEP_ID", "4294967290"},
                               {"SLURM_STEP_NODELIST", "n0"},
                               {"SLURM_STEP_TASKS_PER_NODE", "1"},
                               {"SLURM_PROCID", "0"}});
  EXPECT_EQ(ClusterText(*ReadSlurmCluster(shell, 0), Format::kHostList), "n0:2,n1:2,n2:2,n3:2\n");
}

TEST(Slurm, RejectsTooManyRanks) {
  const FakeEnvironment batch(
      {{"SLURM_JOB_NODELIST", "n[0-65535]"}, {"SLURM_TASKS_PER_NODE", "1(x65536)"}});
  EXPECT_EQ(
      TextOf<ConfigError>([&] { ReadSlurmCluster(batch, 1024); }),
      "[slurm] SLURM_JOB_NODELIST: too many ranks: got 65536 nodes of 1024 GPUs, want at most "
      "1048576 ranks");
}

TEST(Slurm, RejectsCountsThatDoNotMatchTheNodes) {
  const FakeEnvironment batch(
      {{"SLURM_JOB_NODELIST", "n[0-2]"}, {"SLURM_TASKS_PER_NODE", "2(x2)"}});
  EXPECT_EQ(TextOf<ConfigError>([&] { ReadSlurmCluster(batch, 0); }),
            "[slurm] SLURM_TASKS_PER_NODE: does not match SLURM_JOB_NODELIST: got 2 nodes, want 3");
}

}  // namespace
}  // namespace carole::launch
