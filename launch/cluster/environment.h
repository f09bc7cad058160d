// Finds out which launcher started this process and with which rank. The answer comes from
// environment variables that launchers set, so it is known before MPI starts.
//
// Several launchers may have set variables. The first one in this order wins:
//   1. Open MPI. Under its mpirun in a Slurm job, the variables of Slurm describe mpirun's daemon
//      and not the rank.
//   2. PMIx. It gives the rank; the other numbers come from Slurm.
//   3. PMI (Hydra of MPICH and others).
//   4. Slurm, only in a step (srun). The batch script also has SLURM_PROCID=0 and SLURM_NTASKS,
//      but is not a rank.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace carole::launch {

// getenv, or a replacement in tests: returns the value of a variable, or nullptr if it is not set.
using GetEnvFunction = std::function<const char*(const char*)>;

// The position of this process among the ranks of its job, as its launcher says it.
struct RankPlacement {
  std::string launcher;  // "Open MPI", "PMIx", "PMI" or "Slurm"
  std::string variable;  // the variable that holds the rank, for messages
  int rank = 0;
  int size = 0;        // world size; 0: unknown
  int local_rank = 0;  // rank among the ranks of this host; -1: unknown
  int local_size = 0;  // number of ranks on this host; 0: unknown
};

// Returns nullopt if no launcher started this process. Throws ConfigError if a variable is not a
// number or contradicts the others.
std::optional<RankPlacement> FindRankPlacement(const GetEnvFunction& get);

// Returns whether MPI must be started. It is not started for a single task of Slurm without PMIx
// (such as srun --pty): Slurm alone cannot serve MPI's start, and one task does not need MPI.
bool NeedsMpi(const RankPlacement& placement);

// Throws ConfigError if srun started several processes without PMIx, because MPI cannot connect
// them.
void RequirePmix(const RankPlacement& placement);

// Throws ConfigError if the launcher started several processes but MPI sees only this one
// (`ranks_seen` == 1).
void RequireWholeJob(const RankPlacement& placement, int ranks_seen);

// Throws UsageError if the launcher started neither `ranks` ranks on this host nor `ranks` ranks in
// the whole job. `ranks`: what the user asked for; 0: any number is right.
void RequireRanks(const RankPlacement& placement, int ranks);

// Throws ConfigError if a launcher whose processes cannot be ranks (horovodrun or torchrun) started
// several: each would train alone. Call it if FindRankPlacement() returns nullopt.
void RequireUsableLauncher(const GetEnvFunction& get);

// Returns the index of this rank's GPU among the num_visible GPUs that the process sees. The index
// is the local rank. CUDA has already removed the GPUs that CUDA_VISIBLE_DEVICES does not list;
// `visible_devices` is that variable, or nullptr. If it leaves one GPU, the result is 0: this is
// how launchers bind a GPU to each rank. Throws ConfigError if there are too few GPUs.
int ChooseGpu(const RankPlacement& placement, int num_visible, const char* visible_devices);

}  // namespace carole::launch
