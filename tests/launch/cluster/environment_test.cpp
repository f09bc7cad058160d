// Tests the search for the launcher's variables. The values were observed in ranks of Open MPI 4.1
// and Slurm 22.05.
#include "launch/cluster/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launch/cluster/fake_environment.h"
#include "tests/support/text_of.h"

namespace carole::launch {
namespace {

using carole::testing::FakeEnvironment;

struct PlacementCase {
  const char* name;
  std::map<std::string, std::string> variables;
  RankPlacement placement;
};

const PlacementCase kPlacementCases[] = {
    {"mpirun",
     {{"OMPI_COMM_WORLD_RANK", "2"},
      {"OMPI_COMM_WORLD_SIZE", "3"},
      {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
      {"PMIX_RANK", "2"}},
     {"Open MPI", "OMPI_COMM_WORLD_RANK", 2, 3, 0, 1}},
    {"mpirun in a Slurm job, whose variables describe the daemon",
     {{"OMPI_COMM_WORLD_RANK", "5"},
      {"OMPI_COMM_WORLD_SIZE", "6"},
      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
      {"PMIX_RANK", "5"},
      {"SLURM_PROCID", "1"},
      {"SLURM_NTASKS", "2"},
      {"SLURM_LOCALID", "0"},
      {"SLURM_NODEID", "2"},
      {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}},
     {"Open MPI", "OMPI_COMM_WORLD_RANK", 5, 6, 1, 2}},
    {"srun --mpi=pmix",
     {{"PMIX_RANK", "4"},
      {"OMPI_APP_CTX_NUM_PROCS", "5"},
      {"SLURM_PROCID", "4"},
      {"SLURM_NTASKS", "5"},
      {"SLURM_LOCALID", "0"},
      {"SLURM_NODEID", "2"},
      {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"}},
     {"PMIx", "PMIX_RANK", 4, 5, 0, 1}},
    {"PMIx without Slurm",
     {{"PMIX_RANK", "1"}, {"OMPI_APP_CTX_NUM_PROCS", "2"}},
     {"PMIx", "PMIX_RANK", 1, 2, -1, 0}},
    {"PMIx with nothing but the rank", {{"PMIX_RANK", "1"}}, {"PMIx", "PMIX_RANK", 1, 0, -1, 0}},
    {"PMI of Hydra",
     {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}},
     {"PMI", "PMI_RANK", 3, 4, 1, 2}},
    {"srun without PMI",
     {{"SLURM_PROCID", "1"},
      {"SLURM_LOCALID", "1"},
      {"SLURM_NODEID", "0"},
      {"SLURM_STEP_TASKS_PER_NODE", "2"}},
     {"Slurm", "SLURM_PROCID", 1, 2, 1, 2}},
};

TEST(Environment, FindsThePlacementOfARank) {
  for (const PlacementCase& test : kPlacementCases) {
    const std::optional<RankPlacement> placement =
        FindRankPlacement(FakeEnvironment(test.variables));
    ASSERT_TRUE(placement.has_value()) << test.name;
    EXPECT_EQ(placement->launcher, test.placement.launcher) << test.name;
    EXPECT_EQ(placement->variable, test.placement.variable) << test.name;
    EXPECT_EQ(placement->rank, test.placement.rank) << test.name;
    EXPECT_EQ(placement->size, test.placement.size) << test.name;
    EXPECT_EQ(placement->local_rank, test.placement.local_rank) << test.name;
    EXPECT_EQ(placement->local_size, test.placement.local_size) << test.name;
  }
}

TEST(Environment, FindsNoRankOutsideOfALauncher) {
  EXPECT_FALSE(FindRankPlacement(FakeEnvironment({})).has_value());
  // The batch script of a Slurm job.
  EXPECT_FALSE(
      FindRankPlacement(
          FakeEnvironment({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "6"}, {"SLURM_NODEID", "0"}}))
          .has_value());
}

TEST(Environment, OnlyASingleSlurmTaskNeedsNoMpi) {
  const auto needs_mpi = [](std::map<std::string, std::string> variables) {
    return NeedsMpi(*FindRankPlacement(FakeEnvironment(std::move(variables))));
  };
  EXPECT_FALSE(needs_mpi({{"SLURM_PROCID", "0"}, {"SLURM_STEP_TASKS_PER_NODE", "1"}}));
  EXPECT_TRUE(needs_mpi({{"SLURM_PROCID", "0"}, {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}}));
  EXPECT_TRUE(
      needs_mpi({{"SLURM_PROCID", "0"}, {"SLURM_STEP_TASKS_PER_NODE", "1"}, {"PMIX_RANK", "0"}}));
  EXPECT_TRUE(needs_mpi({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}));
}

TEST(Environment, RejectsBadVariables) {
  const std::pair<std::map<std::string, std::string>, const char*> cases[] = {
      {{{"OMPI_COMM_WORLD_RANK", "x"}},
       "[launch] OMPI_COMM_WORLD_RANK: bad number: got \"x\", want 0 to 16777216"},
      {{{"OMPI_COMM_WORLD_RANK", "-1"}},
       "[launch] OMPI_COMM_WORLD_RANK: bad number: got \"-1\", want 0 to 16777216"},
      {{{"PMI_RANK", ""}}, "[launch] PMI_RANK: bad number: got \"\", want 0 to 16777216"},
      {{{"PMI_RANK", "4"}, {"PMI_SIZE", "4"}},
       "[launch] PMI_RANK: rank out of range: got 4, want a rank below the world size of 4"},
      {{{"OMPI_COMM_WORLD_RANK", "1"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}},
       "[launch] OMPI_COMM_WORLD_RANK: local rank out of range: got 2, want a local rank below 2, "
       "the "
       "number of ranks on this host"},
      {{{"SLURM_PROCID", "0"}, {"SLURM_STEP_TASKS_PER_NODE", "2("}},
       "[slurm] SLURM_STEP_TASKS_PER_NODE: bad list at character 2: got \"2(\", want ','"},
  };
  for (const auto& [variables, message] : cases)
    EXPECT_EQ(TextOf<ConfigError>(
                  [&variables = variables] { FindRankPlacement(FakeEnvironment(variables)); }),
              message);
}

TEST(Environment, RefusesProcessesThatAreNotConnected) {
  const RankPlacement placement{"PMIx", "PMIX_RANK", 0, 4, 0, 1};
  EXPECT_EQ(TextOf<ConfigError>([&] { RequireWholeJob(placement, 1); }),
            "[launch] job: its processes are not connected: got 1 rank from MPI, want 4 from PMIx "
            "(PMIX_RANK); start with the mpirun of carole's MPI library, or with srun --mpi=pmix");
  EXPECT_NO_THROW(RequireWholeJob(placement, 4));
  EXPECT_NO_THROW(RequireWholeJob({"PMIx", "PMIX_RANK", 0, 1, 0, 1}, 1));
}

TEST(Environment, RefusesAnotherNumberOfRanksThanAskedFor) {
  const RankPlacement two_hosts{"Open MPI", "OMPI_COMM_WORLD_RANK", 0, 4, 0, 2};
  for (const int ranks : {0, 2, 4}) EXPECT_NO_THROW(RequireRanks(two_hosts, ranks));
  EXPECT_EQ(
      TextOf<UsageError>([&] { RequireRanks(two_hosts, 1); }),
      "[launch] \x1f$(ranks): is not the number of started ranks: got 1, want 4, or 2 on this "
      "host, as Open MPI started; omit it and its other names, \x1f$(num_clones) and "
      "\x1f$(num_gpus)");
  EXPECT_NO_THROW(RequireRanks({.launcher = "PMIx", .variable = "PMIX_RANK"}, 3));  // unknown
}

TEST(Environment, RefusesLaunchersWhoseProcessesCannotBeRanks) {
  using Variables = std::map<std::string, std::string>;
  for (const Variables& variables : {Variables{{"HOROVOD_RANK", "0"}, {"HOROVOD_SIZE", "2"}},
                                     Variables{{"RANK", "1"}, {"WORLD_SIZE", "2"}}})
    EXPECT_THAT(TextOf<ConfigError>([&] { RequireUsableLauncher(FakeEnvironment(variables)); }),
                ::testing::HasSubstr("SIZE=2: its 2 processes would each train alone"));
  for (const Variables& variables :
       {Variables{}, Variables{{"RANK", "0"}, {"WORLD_SIZE", "1"}},
        Variables{{"RANK", "gold"}, {"WORLD_SIZE", "large"}}, Variables{{"WORLD_SIZE", "8"}}})
    EXPECT_NO_THROW(RequireUsableLauncher(FakeEnvironment(variables)));
}

TEST(Environment, RefusesSrunTasksWithoutPmix) {
  EXPECT_EQ(TextOf<ConfigError>([] {
              RequirePmix({"Slurm", "SLURM_PROCID", 0, 2, 0, 1});
            }),
            "[launch] srun: its 2 tasks cannot connect to each other: got no PMIx, want srun "
            "--mpi=pmix (srun --mpi=list says whether it is installed) or mpirun");
  EXPECT_NO_THROW(RequirePmix({"Slurm", "SLURM_PROCID", 0, 1, 0, 1}));
  EXPECT_NO_THROW(RequirePmix({"PMIx", "PMIX_RANK", 0, 4, 0, 1}));
}

TEST(Environment, ChoosesTheGpuOfALocalRank) {
  const RankPlacement placement{"Open MPI", "OMPI_COMM_WORLD_RANK", 5, 8, 1, 4};
  const RankPlacement alone{"Open MPI", "OMPI_COMM_WORLD_RANK", 5, 8, 0, 1};
  const RankPlacement third{"PMI", "PMI_RANK", 3, 4, 2, 4};
  EXPECT_EQ(ChooseGpu(placement, 4, nullptr), 1);
  EXPECT_EQ(ChooseGpu(placement, 4, "4,5,6,7"), 1);
  EXPECT_EQ(ChooseGpu(placement, 1, "3"), 0);  // bound by the launcher
  EXPECT_EQ(ChooseGpu(alone, 1, nullptr), 0);
  EXPECT_EQ(ChooseGpu({"PMI", "PMI_RANK", 1, 2, -1, 0}, 2, nullptr), 1);
  EXPECT_EQ(TextOf<ConfigError>([&] { ChooseGpu(third, 2, "0,1"); }),
            "[launch] PMI_RANK: more ranks than GPUs on this host: got local rank 2, want a local "
            "rank below 2");
  EXPECT_EQ(
      TextOf<ConfigError>([&] { ChooseGpu(placement, 1, nullptr); }),
      "[launch] OMPI_COMM_WORLD_RANK: more ranks than GPUs on this host: got local rank 1, want "
      "a local rank below 1");
  EXPECT_EQ(
      TextOf<ConfigError>([&] { ChooseGpu(placement, 0, ""); }),
      "[launch] OMPI_COMM_WORLD_RANK: more ranks than GPUs on this host: got local rank 1, want "
      "a local rank below 0");
}

}  // namespace
}  // namespace carole::launch
