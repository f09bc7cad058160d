#include "src/commands/drill/job_environment.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace carole::commands {
namespace {

constexpr std::string_view kMca = "OMPI_MCA_";
// The beginnings of MCA parameters that users set. mpirun sets all others for its ranks.
constexpr std::string_view kUserParameters[] = {"btl",       "pml",   "mtl",       "oob",
                                                "plm_rsh",   "regx",  "coll",      "routed",
                                                "mpi_yield", "rmaps", "orte_keep", "hwloc"};
constexpr std::string_view kLaunchers[] = {"OMPI_", "PMIX_", "PMI_", "PRTE_", "HYDRA_"};
// These variables describe the whole job in Slurm. The others describe a step or a task.
constexpr std::string_view kSlurmJob[] = {"SLURM_JOB",    "SLURM_NODELIST",
                                          "SLURM_NNODES", "SLURM_TASKS_PER_NODE",
                                          "SLURM_CONF",   "SLURM_CLUSTER"};

bool BeginsWithOneOf(std::string_view text, const auto& beginnings) {
  return std::ranges::any_of(
      beginnings, [&](std::string_view beginning) { return text.starts_with(beginning); });
}

}  // namespace

bool DescribesRank(std::string_view variable) {
  if (variable.starts_with(kMca))
    return !BeginsWithOneOf(variable.substr(kMca.size()), kUserParameters);
  if (variable.starts_with("SLURM_")) return !BeginsWithOneOf(variable, kSlurmJob);
  return BeginsWithOneOf(variable, kLaunchers);
}

void LeaveJob() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    if (DescribesRank(name)) names.emplace_back(name);
  }
  for (const std::string& name : names) unsetenv(name.c_str());
  // mpirun kills the other ranks this many seconds after one has died.
  setenv("OMPI_MCA_odls_base_sigkill_timeout", "3", 1);
  // Open MPI 5 would kill them at once if a rank exits.
  setenv("PRTE_MCA_state_base_error_non_zero_exit", "0", 1);
  // In Slurm, the job of the drill still holds its cores, and mpirun's step on the other hosts
  // would wait for them forever.
  setenv("SLURM_OVERLAP", "1", 1);
  // Ranks may share cores, so those that wait must not spin.
  setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  setenv("OMP_WAIT_POLICY", "passive", 0);
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) CPU_SET(cpu, &all);
  sched_setaffinity(0, sizeof all, &all);  // the kernel removes what the cgroup forbids
}

std::vector<DrillHost> CountRanks(const std::vector<std::string>& names) {
  std::vector<DrillHost> hosts;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(hosts, name, &DrillHost::name);
    found == hosts.end() ? hosts.push_back({name, 1}) : void(++found->ranks);
  }
  return hosts;
}

std::string DrillHostfile(const std::vector<DrillHost>& hosts) {
  std::string text;
  for (const DrillHost& host : hosts)
    text += fmt::format("{} slots={}\n", text.empty() ? "localhost" : host.name, host.ranks);
  return text;
}

}  // namespace carole::commands
