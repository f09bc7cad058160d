// What may be wrong with a machine, and what to do about it. Measuring and judging are apart: the
// judgements are pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace carole::launch {

enum class Verdict { kOk, kWarning, kTrouble, kSkipped };

struct Finding {
  std::string check;  // "cores", "shared memory", …
  Verdict verdict = Verdict::kOk;
  std::string text;  // what was found
  std::string fix;   // "" when all is well
};

// "ok", "warning", "trouble" or "skipped".
const char* VerdictName(Verdict verdict);

// Cores that this rank may use, of the machine's, which local_ranks ranks share.
Finding JudgeCores(int bound_cores, int machine_cores, int local_ranks, double quota);
Finding CheckCores(int local_ranks);

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

// Whether the machine has NVIDIA's driver, as seen by a program that was built without CUDA.
Finding JudgeGpu(bool has_driver);
Finding CheckGpu();

}  // namespace carole::launch
