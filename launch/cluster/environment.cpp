#include "launch/cluster/environment.h"

#include <fmt/format.h>

#include <string_view>

#include "launch/cluster/message_text.h"
#include "launch/cluster/slurm.h"
#include "src/core/error.h"
#include "src/core/text/parse_number.h"

namespace carole::launch {
namespace {

constexpr int kMaxRanks = 1 << 24;
constexpr const char* kSlurm = "Slurm";

[[noreturn]] void RefuseVariable(const char* variable, std::string_view what,
                                 const std::string& got, const std::string& want) {
  throw ConfigError(fmt::format("[launch] {}: {}: got {}, want {}", variable, what, got, want));
}

// Returns `absent` if the variable is not set.
int ReadNumber(const GetEnvFunction& get, const char* variable, int absent) {
  const char* text = get(variable);
  if (text == nullptr) return absent;
  const std::string_view view = text;
  const auto value = ParseNumber<int>(view);
  if (!value || *value < 0 || *value > kMaxRanks)
    RefuseVariable(variable, "bad number", Quote(view), fmt::format("0 to {}", kMaxRanks));
  return *value;
}

// The names of one launcher's variables.
struct Variables {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};
constexpr Variables kOpenMpi = {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Variables kPmi = {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};

RankPlacement ReadPlacement(const GetEnvFunction& get, const Variables& variables) {
  return {.launcher = variables.launcher,
          .variable = variables.rank,
          .rank = ReadNumber(get, variables.rank, 0),
          .size = ReadNumber(get, variables.size, 0),
          .local_rank = ReadNumber(get, variables.local_rank, -1),
          .local_size = ReadNumber(get, variables.local_size, 0)};
}

// Returns the placement in a step of srun, or nullopt outside of a step.
std::optional<RankPlacement> ReadSlurmStep(const GetEnvFunction& get) {
  const char* counts_text = get("SLURM_STEP_TASKS_PER_NODE");
  if (counts_text == nullptr || get("SLURM_PROCID") == nullptr) return std::nullopt;
  RankPlacement placement{.launcher = kSlurm,
                          .variable = "SLURM_PROCID",
                          .rank = ReadNumber(get, "SLURM_PROCID", 0),
                          .local_rank = ReadNumber(get, "SLURM_LOCALID", -1)};
  const std::vector<int> counts = ExpandCounts("[slurm] SLURM_STEP_TASKS_PER_NODE", counts_text);
  for (int count : counts) placement.size += count;
  const auto node = static_cast<size_t>(ReadNumber(get, "SLURM_NODEID", kMaxRanks));
  if (node < counts.size()) placement.local_size = counts[node];
  return placement;
}

// PMIx itself gives only the rank. The other numbers come from the step of Slurm or, without one,
// from Open MPI's count of the processes of this program.
RankPlacement ReadPmix(const GetEnvFunction& get) {
  RankPlacement placement = ReadSlurmStep(get).value_or(
      RankPlacement{.size = ReadNumber(get, "OMPI_APP_CTX_NUM_PROCS", 0), .local_rank = -1});
  placement.launcher = "PMIx";
  placement.variable = "PMIX_RANK";
  placement.rank = ReadNumber(get, "PMIX_RANK", 0);
  return placement;
}

std::optional<RankPlacement> ReadFirst(const GetEnvFunction& get) {
  if (get(kOpenMpi.rank) != nullptr) return ReadPlacement(get, kOpenMpi);
  if (get("PMIX_RANK") != nullptr) return ReadPmix(get);
  if (get(kPmi.rank) != nullptr) return ReadPlacement(get, kPmi);
  return ReadSlurmStep(get);
}

}  // namespace

std::optional<RankPlacement> FindRankPlacement(const GetEnvFunction& get) {
  const std::optional<RankPlacement> placement = ReadFirst(get);
  if (!placement.has_value()) return placement;
  if (placement->size > 0 && placement->rank >= placement->size)
    RefuseVariable(placement->variable.c_str(), "rank out of range",
                   std::to_string(placement->rank),
                   fmt::format("a rank below the world size of {}", placement->size));
  if (placement->local_size > 0 && placement->local_rank >= placement->local_size)
    RefuseVariable(placement->variable.c_str(), "local rank out of range",
                   std::to_string(placement->local_rank),
                   fmt::format("a local rank below {}, the number of ranks on this host",
                               placement->local_size));
  return placement;
}

bool NeedsMpi(const RankPlacement& placement) {
  return placement.launcher != kSlurm || placement.size > 1;
}

void RequirePmix(const RankPlacement& placement) {
  if (placement.launcher != kSlurm || placement.size <= 1) return;
  throw ConfigError(fmt::format(
      "[launch] srun: its {} tasks cannot connect to each other: got no PMIx, want srun --mpi=pmix "
      "(srun --mpi=list says whether it is installed) or mpirun",
      placement.size));
}

void RequireWholeJob(const RankPlacement& placement, int ranks_seen) {
  if (ranks_seen != 1 || placement.size <= 1) return;
  throw ConfigError(fmt::format(
      "[launch] job: its processes are not connected: got 1 rank from MPI, want {} from {} ({}); "
      "start with the mpirun of carole's MPI library, or with srun --mpi=pmix",
      placement.size, placement.launcher, placement.variable));
}

void RequireRanks(const RankPlacement& placement, int ranks) {
  if (ranks == 0 || placement.size == 0) return;
  if (ranks == placement.size || ranks == placement.local_size) return;
  const bool has_hosts = placement.local_size > 0 && placement.local_size < placement.size;
  throw UsageError({.tag = "launch",
                    .option = "ranks",
                    .problem = "is not the number of started ranks",
                    .got = ranks,
                    .want = fmt::format(
                        "{}{}, as {} started", placement.size,
                        has_hosts ? fmt::format(", or {} on this host", placement.local_size) : "",
                        placement.launcher),
                    .hint = fmt::format("omit it and its other names, {} and {}",
                                        Option("num_clones"), Option("num_gpus"))});
}

void RequireUsableLauncher(const GetEnvFunction& get) {
  struct OtherLauncher {
    const char* program;
    const char* rank;
    const char* size;
  };
  constexpr OtherLauncher kOthers[] = {{"horovodrun", "HOROVOD_RANK", "HOROVOD_SIZE"},
                                       {"torchrun", "RANK", "WORLD_SIZE"}};
  for (const auto& [program, rank, size] : kOthers) {
    const char* rank_text = get(rank);
    const char* size_text = get(size);
    if (rank_text == nullptr || size_text == nullptr) continue;
    const auto processes = ParseNumber<int>(std::string_view(size_text));
    if (!processes || *processes <= 1) continue;
    throw ConfigError(
        fmt::format("[launch] {}={}: its {} processes would each train alone: got {} or a program "
                    "like it, want mpirun -np {} carole train, srun --mpi=pmix or {}; if there is "
                    "only this process, unset {}",
                    size, *processes, *processes, program, *processes,
                    Option("ranks", std::to_string(*processes)), size));
  }
}

int ChooseGpu(const RankPlacement& placement, int num_visible, const char* visible_devices) {
  const bool is_bound = visible_devices != nullptr || placement.local_size == 0;
  if (num_visible == 1 && is_bound) return 0;
  const int gpu = placement.local_rank < 0 ? placement.rank : placement.local_rank;
  if (gpu >= num_visible)
    RefuseVariable(placement.variable.c_str(), "more ranks than GPUs on this host",
                   fmt::format("local rank {}", gpu),
                   fmt::format("a local rank below {}", num_visible));
  return gpu;
}

}  // namespace carole::launch
