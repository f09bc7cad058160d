// Which launcher started this process, and as which rank: read from the variables that launchers
// set, so that it is known before MPI starts.
//
// The first launcher wins that speaks for itself. Open MPI's variables come first, because under
// its mpirun inside a Slurm job Slurm's describe the daemon, not the rank. PMIx says the rank; the
// rest is then Slurm's. Slurm's count only in a step (srun): the batch script has SLURM_PROCID=0
// and SLURM_NTASKS too, and is no rank.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace carole::launch {

// getenv, or a test's stand-in.
using GetVariable = std::function<const char*(const char*)>;

struct RankPlacement {
  std::string launcher;  // "Open MPI", "PMIx", "PMI" or "Slurm"
  std::string variable;  // that says so
  int rank = 0;
  int size = 0;        // ranks of the job; 0: not said
  int local_rank = 0;  // among those of this machine; -1: not said
  int local_size = 0;  // 0: not said
};

// nullopt: no launcher started this process. Throws ConfigError for a variable that is no number or
// does not fit the others.
std::optional<RankPlacement> FindRankPlacement(const GetVariable& get);

// Whether MPI has to be started. Slurm alone, without PMIx, does not serve its start; nor need one
// task (srun --pty) have it.
bool NeedsMpi(const RankPlacement& place);

// Throws ConfigError when srun started several processes that MPI cannot join, as they have no
// PMIx.
void RequirePmix(const RankPlacement& place);

// Throws ConfigError when the launcher started several processes that each see `ranks_seen` == 1.
void RequireWholeJob(const RankPlacement& place, int ranks_seen);

// The GPU of this rank among the num_visible ones that the process sees (CUDA has left out those
// that CUDA_VISIBLE_DEVICES, here `visible_devices`, does not list): its local rank's. One that the
// variable alone leaves is taken as it is: so do launchers bind a GPU to each rank. Throws
// ConfigError when there are too few.
int ChooseGpu(const RankPlacement& place, int num_visible, const char* visible_devices);

}  // namespace carole::launch
