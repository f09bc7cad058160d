// What may be wrong with a machine, and what to do about it. Measuring and judging are apart: the
// judgments are pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace carole::launch {

enum class Verdict { kOk, kWarning, kProblem, kSkipped };

struct Finding {
  std::string check;  // "cores", "shared memory", …
  Verdict verdict = Verdict::kOk;
  std::string text;  // what was found
  std::string fix;   // "" when all is well
};

// "ok", "warning", "problem" or "skipped".
const char* VerdictName(Verdict verdict);

// Cores that this rank may use, of the machine's, which local_ranks ranks share. quota: CPUs' worth
// of time that control groups allow, 0: any.
Finding JudgeCores(int bound_cores, int machine_cores, int local_ranks, double quota);
Finding CheckCores(int local_ranks);

// Bytes that the machine, or its control groups, have left for local_ranks ranks.
Finding JudgeMemory(int64_t available_bytes, int local_ranks);
Finding CheckMemory(int local_ranks);

// Bytes that are free in /dev/shm, where the ranks of a machine exchange gradients.
Finding JudgeSharedMemory(int64_t free_bytes);
Finding CheckSharedMemory();

// RLIMIT_NOFILE and RLIMIT_MEMLOCK (bytes; -1: none); InfiniBand needs locked memory.
Finding JudgeLimits(int64_t open_files, int64_t locked_bytes, bool has_infiniband);
Finding CheckLimits();

// Interfaces with an address, without loopback; `chosen` is Open MPI's btl_tcp_if_include.
Finding JudgeInterfaces(const std::vector<std::string>& names, const std::string& chosen);
Finding CheckInterfaces();

// `library` as MpiVersion() says it; `mpirun` is what `mpirun --version` prints, "" without one.
Finding JudgeMpi(const std::string& library, const std::string& mpirun);
Finding CheckMpi(const std::string& library);

// Free bytes and written bytes a second, of a folder for checkpoints.
Finding JudgeDisk(const std::string& folder, int64_t free_bytes, double bytes_per_second);
// Writes and removes a file of 32 MB. The folder need not be there yet.
Finding CheckDisk(const std::string& folder);

// Seconds between the slowest and the fastest clock of the ranks, known to +- `error`.
Finding JudgeClocks(double skew_seconds, double error);

// The library of PMIx and the one that started this rank ("4.2.2"; "": none known); `plugins` is
// what `srun --mpi=list` prints inside a Slurm job, "" elsewhere.
Finding JudgePmix(const std::string& library, const std::string& starter, bool in_slurm,
                  const std::string& plugins);
Finding CheckPmix();

// What NVIDIA's driver says of itself.
struct GpuDriver {
  std::string version;  // "535.104.05"; "": there is no driver
  int cuda = 0;         // newest CUDA that it runs, as 12020 for 12.2; 0: not said
};
GpuDriver ReadGpuDriver();

// GPUs as the program's own kernels see them; the caller asks them, as nothing here knows CUDA.
struct GpuFacts {
  GpuDriver driver;
  std::string built_cuda;  // version of the kernels' CUDA; "no": built without
  int gpus = 0;            // that this process may use
  std::string problem;     // why there are none; "" when there are some
  int local_ranks = 1;
  std::string visible_devices;  // CUDA_VISIBLE_DEVICES; "": not set
};
Finding JudgeGpu(const GpuFacts& facts);

// NCCL as the program loads it: "2.28.9"; or "" and why it cannot be used. Several ranks need it.
Finding JudgeNccl(const std::string& version, const std::string& problem, const GpuFacts& facts);

}  // namespace carole::launch
