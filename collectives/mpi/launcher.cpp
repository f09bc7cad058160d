#include "collectives/mpi/launcher.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "src/core/error.h"

namespace carole::collectives {

std::optional<Launch> FindLaunch(const std::function<const char*(const char*)>& get) {
  // Slurm's two: of the step that srun started, and, before, of the whole allocation.
  for (const char* variable :
       {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}) {
    const char* text = get(variable);
    if (text == nullptr) continue;
    const int processes = std::max(1, std::atoi(text));
    // srun --pty and the like: nobody serves MPI's start there, and one process needs no MPI.
    const bool is_slurms = std::string_view(variable).starts_with("SLURM_");
    if (is_slurms && processes == 1 && get("PMIX_RANK") == nullptr) return std::nullopt;
    return Launch{.variable = variable, .num_processes = processes};
  }
  if (get("PMIX_RANK") != nullptr) return Launch{.variable = "PMIX_RANK", .num_processes = 1};
  return std::nullopt;
}

void RequireWholeJob(const Launch& launch, int mpi_size) {
  if (mpi_size != 1 || launch.num_processes == 1) return;
  throw ConfigError(fmt::format(
      "[comm] job: each of its processes believes to be alone: got 1 rank from MPI, want {} ({}); "
      "start with the mpirun of the MPI that carole was built with, or with srun --mpi=pmix",
      launch.num_processes, launch.variable));
}

}  // namespace carole::collectives
