// The checks of `carole doctor`: what may be wrong with a machine, and how to fix it.
//
// Most checks have two functions. JudgeX() is pure: it turns measured numbers into a Finding, so
// tests can give it any machine. CheckX() measures this machine and calls JudgeX().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace carole::launch {

enum class FindingStatus { kOk, kWarning, kProblem, kSkipped };

// The result of one check.
struct Finding {
  std::string check;  // name of the check: "cores", "shared memory", …
  FindingStatus status = FindingStatus::kOk;
  std::string text;  // what was found
  std::string fix;   // what the user can do; "" if nothing is wrong
};

// Returns "ok", "warning", "problem" or "skipped".
const char* FindingStatusName(FindingStatus status);

// Checks that each rank can use its share of the cores. `bound_cores`: cores that this rank is
// bound to; `machine_cores`: cores of the machine, which `local_ranks` ranks share; `quota`: CPU
// time that the cgroups allow, as a number of CPUs, 0: unlimited.
Finding JudgeCores(int bound_cores, int machine_cores, int local_ranks, double quota);
Finding CheckCores(int local_ranks);

// Checks the available memory. `available_bytes`: what the machine or its cgroups have left for
// `local_ranks` ranks together.
Finding JudgeMemory(int64_t available_bytes, int local_ranks);
Finding CheckMemory(int local_ranks);

// Checks the free bytes in /dev/shm, through which ranks of one host exchange gradients. -1:
// /dev/shm cannot be read.
Finding JudgeSharedMemory(int64_t free_bytes);
Finding CheckSharedMemory();

// Checks the limits RLIMIT_NOFILE and RLIMIT_MEMLOCK (in bytes). -1: unlimited. InfiniBand needs
// locked memory.
Finding JudgeLimits(int64_t open_files, int64_t locked_bytes, bool has_infiniband);
Finding CheckLimits();

// Checks what NCCL needs if several ranks of a host use GPUs: free bytes in /dev/shm (-1: it cannot
// be read) and locked memory (RLIMIT_MEMLOCK in bytes, -1: unlimited). `gpu_ranks`: ranks of this
// host that use GPUs.
Finding JudgeGpuMemory(int64_t shm_free_bytes, int64_t locked_bytes, int gpu_ranks);
Finding CheckGpuMemory(int gpu_ranks);

// Checks the network interfaces. `names`: interfaces that are up and have an IPv4 address, without
// loopback; `chosen`: Open MPI's parameter btl_tcp_if_include, "": not set.
Finding JudgeInterfaces(const std::vector<std::string>& names, const std::string& chosen);
Finding CheckInterfaces();

// Checks that library and mpirun belong together. `library`: the result of MpiVersion(); `mpirun`:
// the output of `mpirun --version`, "": there is no mpirun.
Finding JudgeMpi(const std::string& library, const std::string& mpirun);
Finding CheckMpi(const std::string& library);

// Checks the disk of a folder for checkpoints: free bytes and measured write speed.
Finding JudgeDisk(const std::string& folder, int64_t free_bytes, double bytes_per_second);
// Describes a folder in which a file cannot be written; `error` is the errno of the attempt.
Finding JudgeUnwritable(const std::string& folder, int error);
// Writes and removes a file of 32 MB. If the folder does not exist, uses its closest parent that
// does.
Finding CheckDisk(const std::string& folder);

// Checks the clocks of the ranks. `skew_seconds`: difference between the slowest and the fastest
// clock; `error`: the measurement is accurate to +- this many seconds.
Finding JudgeClocks(double skew_seconds, double error);

// Checks that the PMIx library of this rank fits the PMIx of the launcher that started it.
// `library` and `starter` are versions such as "4.2.2", "": unknown. `plugins`: the output of `srun
// --mpi=list` in a Slurm job, "" elsewhere.
Finding JudgePmix(const std::string& library, const std::string& starter, bool in_slurm,
                  const std::string& plugins);
Finding CheckPmix();

// The facts that the NVIDIA driver reports about itself.
struct GpuDriver {
  std::string version;  // "535.104.05"; "": no driver is installed
  int cuda = 0;         // newest CUDA version that it supports, 12020 for 12.2; 0: unknown
};
GpuDriver ReadGpuDriver();

// The GPUs of this process. The caller fills it in, because this room cannot call CUDA.
struct GpuFacts {
  GpuDriver driver;
  std::string built_cuda;  // version of CUDA that the kernels were built with; "no": built without
  int gpus = 0;            // number of GPUs that this process may use
  std::string problem;     // why there are none; "" if there are some
  int local_ranks = 1;
  std::string visible_devices;  // CUDA_VISIBLE_DEVICES; "": not set
};
Finding JudgeGpu(const GpuFacts& facts);

// Checks NCCL, which several ranks on GPUs need. `version` of the loaded library, such as "2.28.9";
// or "" and in `problem` the reason why it cannot be used.
Finding JudgeNccl(const std::string& version, const std::string& problem, const GpuFacts& facts);

}  // namespace carole::launch
