// How many threads this process can run at the same time, according to its CPU affinity and its
// cgroups.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace carole::launch {

// Gives the calling thread all OpenMP places back. OMP_PROC_BIND binds the first thread of a
// program to one place before main() starts, and every new thread inherits the binding of its
// parent. Without this call, cores would be counted wrong and threads that are not OpenMP's would
// share one place. Does nothing if OpenMP has bound nothing.
void UndoOpenMpBinding();

// The cores that this process is bound to.
struct BoundCores {
  int count = 1;     // physical cores, as hwloc counts them
  int threads = 1;   // hardware threads (hyperthreads)
  std::string cpus;  // numbers of the hardware threads in the operating system, such as "0-3,8"; ""
                     // if hwloc cannot read the topology
};
BoundCores FindBoundCores();

// Binds all threads of this process to the cores that are next to a PCI device, on its NUMA node.
// `bus_id` is such as "0000:3b:00.0", in lower case. Returns these hardware threads in the form of
// BoundCores::cpus. Returns "" and binds nothing if a launcher or a user has bound the process to a
// part of the machine. It does the same if all cores are next to the device, or if the system does
// not say which are. `root` replaces "/" in tests.
std::string BindNextTo(const std::string& bus_id, const std::filesystem::path& root = "/");

// Returns the number of physical cores of the machine, or of the part of it that a container may
// use; at least 1.
int CountCores();

// Returns the model name of the processor from /proc/cpuinfo.
std::string CpuModelName();

// Returns the CPU time that the cgroups of this process allow, as a number of CPUs (cpu.max in
// version 2, cpu.cfs_quota_us in version 1). It is the smallest quota on the path from the
// process's group to the top. Returns nullopt if there is no limit. `root` replaces "/" in tests.
std::optional<double> CpuQuota(const std::filesystem::path& root = "/");

// Returns how many threads each process should run, at least 1. `sharers` processes are bound to
// the same `cores` (physical cores or hardware threads), and `quota_sharers` processes share the
// same quota.
int ThreadsPerProcess(int cores, int sharers, std::optional<double> quota, int quota_sharers);

// Returns how many of a process's hardware threads may be kept busy while it computes on a GPU, at
// least 1. One stays free, which launches kernels. If the GPUs are on several hosts, four stay
// free, but at most half: an all-reduce by NCCL waits for threads and callbacks on the host.
int ThreadsNextToGpu(int hardware_threads, bool several_hosts);

}  // namespace carole::launch
