// How many threads this process can run at once.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace carole::launch {

// OMP_PROC_BIND binds a program's first thread to one place before main, and every thread begins
// where its parent is. This gives the calling thread all places back, so that cores are counted
// right and other threads than OpenMP's find room. Nothing happens where OpenMP binds nothing.
void LeaveOpenMpPlace();

// What this process is bound to.
struct BoundCores {
  int count = 1;     // hwloc's cores, not their hyperthreads
  int threads = 1;   // hyperthreads too
  std::string cpus;  // as the operating system numbers them, hyperthreads too: "0-3,8"; "" where
                     // hwloc cannot look
};
BoundCores FindBoundCores();
// Of the machine, or of the part of it that a container is given; at least 1.
int CountCores();

// As the processor calls itself.
std::string ModelOfCpu();

// CPUs' worth of time that the control groups of this process allow (cpu.max, or cpu.cfs_quota_us
// of version 1): the smallest on the way from the process's group to the top. nullopt: no limit.
// `root` stands in for / in tests.
std::optional<double> CpuQuota(const std::filesystem::path& root = "/");

// Threads for each of `sharers` processes that are bound to the same `cores` (or hyperthreads) and
// for each of `quota_sharers` that live on the same quota; at least 1.
int ShareOfCores(int cores, int sharers, std::optional<double> quota, int quota_sharers);

}  // namespace carole::launch
