#include "launch/machine/cores.h"

#include <hwloc.h>
#include <omp.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "launch/machine/cgroups.h"
#include "src/core/files/best_effort_file.h"

namespace carole::launch {
namespace {

namespace fs = std::filesystem;

void TakeSmaller(std::optional<double>& least, double quota, double period) {
  if (quota > 0 && period > 0) least = std::min(least.value_or(quota / period), quota / period);
}

// cpu.max contains "QUOTA PERIOD", or "max PERIOD" if there is no limit.
void ReadVersion2(const fs::path& folder, std::optional<double>& least) {
  std::istringstream text(ReadFileOrEmpty(folder / "cpu.max"));
  double quota = 0, period = 0;
  if (text >> quota >> period) TakeSmaller(least, quota, period);
}

// cpu.cfs_quota_us is -1 if there is no limit.
void ReadVersion1(const fs::path& folder, std::optional<double>& least) {
  std::istringstream quota_text(ReadFileOrEmpty(folder / "cpu.cfs_quota_us"));
  std::istringstream period_text(ReadFileOrEmpty(folder / "cpu.cfs_period_us"));
  double quota = 0, period = 0;
  if (quota_text >> quota && period_text >> period) TakeSmaller(least, quota, period);
}

using Topology = std::unique_ptr<hwloc_topology, void (*)(hwloc_topology_t)>;

// Returns null if hwloc cannot read the topology of this machine.
Topology LoadTopology() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return {nullptr, hwloc_topology_destroy};
  Topology loaded(topology, hwloc_topology_destroy);
  if (hwloc_topology_load(topology) != 0) loaded.reset();
  return loaded;
}

int CountCoresIn(hwloc_topology_t topology, hwloc_const_cpuset_t set) {
  int cores = 0;
  for (hwloc_obj_t core = nullptr;
       (core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != nullptr;) {
    if (hwloc_bitmap_intersects(core->cpuset, set) != 0) ++cores;
  }
  return cores > 0 ? cores : std::max(1, hwloc_bitmap_weight(set));
}

using Bitmap = std::unique_ptr<hwloc_bitmap_s, void (*)(hwloc_bitmap_t)>;

Bitmap MakeBitmap() { return {hwloc_bitmap_alloc(), hwloc_bitmap_free}; }

// Returns a list such as "0-3,8".
std::string ListOf(const Bitmap& set) {
  std::string list(static_cast<size_t>(hwloc_bitmap_list_snprintf(nullptr, 0, set.get())), '\0');
  hwloc_bitmap_list_snprintf(list.data(), list.size() + 1, set.get());
  return list;
}

}  // namespace

void UndoOpenMpBinding() {
  if (omp_get_proc_bind() == omp_proc_bind_false) return;
  const Bitmap all = MakeBitmap();
  for (int place = 0; place < omp_get_num_places(); ++place) {
    std::vector<int> ids(static_cast<size_t>(omp_get_place_num_procs(place)));
    omp_get_place_proc_ids(place, ids.data());
    for (int id : ids) hwloc_bitmap_set(all.get(), static_cast<unsigned>(id));
  }
  const Topology topology = LoadTopology();
  if (topology && hwloc_bitmap_iszero(all.get()) == 0)
    hwloc_set_cpubind(topology.get(), all.get(), HWLOC_CPUBIND_THREAD);
}

BoundCores FindBoundCores() {
  const Topology topology = LoadTopology();
  if (!topology) return {};
  const Bitmap bound = MakeBitmap();
  if (hwloc_get_cpubind(topology.get(), bound.get(), HWLOC_CPUBIND_PROCESS) != 0)
    hwloc_bitmap_copy(bound.get(), hwloc_topology_get_allowed_cpuset(topology.get()));
  return {.count = CountCoresIn(topology.get(), bound.get()),
          .threads = std::max(1, hwloc_bitmap_weight(bound.get())),
          .cpus = ListOf(bound)};
}

std::string BindNextTo(const std::string& bus_id, const fs::path& root) {
  std::istringstream file(ReadFileOrEmpty(root / "sys/bus/pci/devices" / bus_id / "local_cpulist"));
  std::string list;
  file >> list;
  const Topology topology = LoadTopology();
  if (list.empty() || !topology) return "";
  const Bitmap bound = MakeBitmap(), next = MakeBitmap();
  if (hwloc_get_cpubind(topology.get(), bound.get(), HWLOC_CPUBIND_PROCESS) != 0 ||
      hwloc_bitmap_list_sscanf(next.get(), list.c_str()) != 0)
    return "";
  const bool is_free =
      hwloc_bitmap_isequal(bound.get(), hwloc_topology_get_allowed_cpuset(topology.get())) != 0;
  hwloc_bitmap_and(next.get(), next.get(), bound.get());
  if (!is_free || hwloc_bitmap_iszero(next.get()) != 0 ||
      hwloc_bitmap_isequal(next.get(), bound.get()) != 0 ||
      hwloc_set_cpubind(topology.get(), next.get(), HWLOC_CPUBIND_PROCESS) != 0)
    return "";
  return ListOf(next);
}

std::string CpuModelName() {
  std::ifstream file("/proc/cpuinfo");
  constexpr std::string_view kKey = "model name\t: ";
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(kKey)) return line.substr(kKey.size());
  }
  return "unknown processor";
}

int CountCores() {
  const Topology topology = LoadTopology();
  return topology ? CountCoresIn(topology.get(), hwloc_topology_get_allowed_cpuset(topology.get()))
                  : 1;
}

std::optional<double> CpuQuota(const fs::path& root) {
  std::optional<double> least;
  ForEachCgroupFolder(
      root, "cpu", [&](const fs::path& folder) { ReadVersion2(folder, least); },
      [&](const fs::path& folder) { ReadVersion1(folder, least); });
  return least;
}

int ThreadsPerProcess(int cores, int sharers, std::optional<double> quota, int quota_sharers) {
  int threads = cores / std::max(1, sharers);
  // Rounded down: a thread with only a part of a CPU would be throttled and delay the others.
  if (quota.has_value()) threads = std::min(threads, static_cast<int>(*quota / quota_sharers));
  return std::max(1, threads);
}

int ThreadsNextToGpu(int hardware_threads, bool several_hosts) {
  return std::max(1, hardware_threads - std::min(several_hosts ? 4 : 1, hardware_threads / 2));
}

}  // namespace carole::launch
