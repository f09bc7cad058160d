#include "launch/cluster/environment.h"

#include <fmt/format.h>

#include <string_view>

#include "launch/cluster/slurm.h"
#include "launch/cluster/text.h"
#include "src/core/error.h"
#include "src/core/text/parse_number.h"

namespace carole::launch {
namespace {

constexpr int kMaxRanks = 1 << 24;
constexpr const char* kSlurm = "Slurm";

[[noreturn]] void Refuse(const char* variable, std::string_view what, const std::string& got,
                         const std::string& want) {
  throw ConfigError(fmt::format("[launch] {}: {}: got {}, want {}", variable, what, got, want));
}

// `absent` when the variable is not set.
int ReadNumber(const GetVariable& get, const char* variable, int absent) {
  const char* text = get(variable);
  if (text == nullptr) return absent;
  const std::string_view view = text;
  const auto value = ParseNumber<int>(view);
  if (!value || *value < 0 || *value > kMaxRanks)
    Refuse(variable, "no number", Quote(view), fmt::format("0 to {}", kMaxRanks));
  return *value;
}

// The variables of one launcher; nullptr where it has none.
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

RankPlacement ReadPlace(const GetVariable& get, const Variables& variables) {
  return {.launcher = variables.launcher,
          .variable = variables.rank,
          .rank = ReadNumber(get, variables.rank, 0),
          .size = ReadNumber(get, variables.size, 0),
          .local_rank = ReadNumber(get, variables.local_rank, -1),
          .local_size = ReadNumber(get, variables.local_size, 0)};
}

// What srun says about its step; nullopt outside of one.
std::optional<RankPlacement> ReadSlurmStep(const GetVariable& get) {
  const char* counts_text = get("SLURM_STEP_TASKS_PER_NODE");
  if (counts_text == nullptr || get("SLURM_PROCID") == nullptr) return std::nullopt;
  RankPlacement place{.launcher = kSlurm,
                      .variable = "SLURM_PROCID",
                      .rank = ReadNumber(get, "SLURM_PROCID", 0),
                      .local_rank = ReadNumber(get, "SLURM_LOCALID", -1)};
  const std::vector<int> counts = ExpandCounts("[slurm] SLURM_STEP_TASKS_PER_NODE", counts_text);
  for (int count : counts) place.size += count;
  const auto node = static_cast<size_t>(ReadNumber(get, "SLURM_NODEID", kMaxRanks));
  if (node < counts.size()) place.local_size = counts[node];
  return place;
}

// PMIx gives the rank only; the step, or PMIx's own count of the program's processes, the rest.
RankPlacement ReadPmix(const GetVariable& get) {
  RankPlacement place = ReadSlurmStep(get).value_or(
      RankPlacement{.size = ReadNumber(get, "OMPI_APP_CTX_NUM_PROCS", 0), .local_rank = -1});
  place.launcher = "PMIx";
  place.variable = "PMIX_RANK";
  place.rank = ReadNumber(get, "PMIX_RANK", 0);
  return place;
}

std::optional<RankPlacement> ReadFirst(const GetVariable& get) {
  if (get(kOpenMpi.rank) != nullptr) return ReadPlace(get, kOpenMpi);
  if (get("PMIX_RANK") != nullptr) return ReadPmix(get);
  if (get(kPmi.rank) != nullptr) return ReadPlace(get, kPmi);
  return ReadSlurmStep(get);
}

}  // namespace

std::optional<RankPlacement> FindRankPlacement(const GetVariable& get) {
  const std::optional<RankPlacement> place = ReadFirst(get);
  if (!place.has_value()) return place;
  if (place->size > 0 && place->rank >= place->size)
    Refuse(place->variable.c_str(), "past the end", std::to_string(place->rank),
           fmt::format("a rank below the job's {}", place->size));
  if (place->local_size > 0 && place->local_rank >= place->local_size)
    Refuse(place->variable.c_str(), "past the machine's end",
           fmt::format("local rank {}", place->local_rank),
           fmt::format("one below the machine's {}", place->local_size));
  return place;
}

bool NeedsMpi(const RankPlacement& place) { return place.launcher != kSlurm || place.size > 1; }

void RequirePmix(const RankPlacement& place) {
  if (place.launcher != kSlurm || place.size <= 1) return;
  throw ConfigError(fmt::format(
      "[launch] srun: its {} tasks cannot find each other: got no PMIx, want srun --mpi=pmix (srun "
      "--mpi=list says whether the site has it), or mpirun",
      place.size));
}

void RequireWholeJob(const RankPlacement& place, int ranks_seen) {
  if (ranks_seen != 1 || place.size <= 1) return;
  throw ConfigError(fmt::format(
      "[launch] job: each of its processes believes to be alone: got 1 rank from MPI, want {} from "
      "{} ({}); start with the mpirun of the MPI that carole was built with, or with srun "
      "--mpi=pmix",
      place.size, place.launcher, place.variable));
}

int ChooseGpu(const RankPlacement& place, int num_visible, const char* visible_devices) {
  const bool is_bound = visible_devices != nullptr || place.local_size == 0;
  if (num_visible == 1 && is_bound) return 0;
  const int gpu = place.local_rank < 0 ? place.rank : place.local_rank;
  if (gpu >= num_visible)
    Refuse(place.variable.c_str(), "more ranks than GPUs on this machine",
           fmt::format("local rank {}", gpu), fmt::format("one below {}", num_visible));
  return gpu;
}

}  // namespace carole::launch
