#include "launch/cores.h"

#include <hwloc.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <sstream>

namespace carole::launch {
namespace {

namespace fs = std::filesystem;

std::string ReadText(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void TakeSmaller(std::optional<double>& least, double quota, double period) {
  if (quota > 0 && period > 0) least = std::min(least.value_or(quota / period), quota / period);
}

// cpu.max is "QUOTA PERIOD" or "max PERIOD".
void ReadVersion2(const fs::path& folder, std::optional<double>& least) {
  std::istringstream text(ReadText(folder / "cpu.max"));
  double quota = 0, period = 0;
  if (text >> quota >> period) TakeSmaller(least, quota, period);
}

// cpu.cfs_quota_us is -1 where there is no limit.
void ReadVersion1(const fs::path& folder, std::optional<double>& least) {
  std::istringstream quota_text(ReadText(folder / "cpu.cfs_quota_us"));
  std::istringstream period_text(ReadText(folder / "cpu.cfs_period_us"));
  double quota = 0, period = 0;
  if (quota_text >> quota && period_text >> period) TakeSmaller(least, quota, period);
}

// Calls read(folder) for `group` below `mount` and for all groups above it. A container may see its
// own group as the mount's top, whatever the path says; missing folders read as no limit.
template <typename Read>
void WalkUp(const fs::path& mount, const fs::path& group, const Read& read) {
  for (fs::path path = group.relative_path();; path = path.parent_path()) {
    read(mount / path);
    if (path.empty()) return;
  }
}

// Whether "cpu,cpuacct" has "cpu".
bool HasCpu(const std::string& controllers) {
  std::istringstream words(controllers);
  for (std::string word; std::getline(words, word, ',');) {
    if (word == "cpu") return true;
  }
  return false;
}

}  // namespace

int CountBoundCores() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return 1;
  const std::unique_ptr<hwloc_topology, void (*)(hwloc_topology_t)> keeper(topology,
                                                                           hwloc_topology_destroy);
  const std::unique_ptr<hwloc_bitmap_s, void (*)(hwloc_bitmap_t)> bound(hwloc_bitmap_alloc(),
                                                                        hwloc_bitmap_free);
  if (hwloc_topology_load(topology) != 0) return 1;
  if (hwloc_get_cpubind(topology, bound.get(), HWLOC_CPUBIND_PROCESS) != 0)
    hwloc_bitmap_copy(bound.get(), hwloc_topology_get_allowed_cpuset(topology));
  int cores = 0;
  for (hwloc_obj_t core = nullptr;
       (core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != nullptr;) {
    if (hwloc_bitmap_intersects(core->cpuset, bound.get()) != 0) ++cores;
  }
  return cores > 0 ? cores : std::max(1, hwloc_bitmap_weight(bound.get()));
}

std::string ControlGroups(const fs::path& root) { return ReadText(root / "proc/self/cgroup"); }

std::optional<double> CpuQuota(const fs::path& root) {
  std::optional<double> least;
  const fs::path mount = root / "sys/fs/cgroup";
  std::istringstream lines(ControlGroups(root));
  for (std::string line; std::getline(lines, line);) {  // "ID:CONTROLLERS:PATH"
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1);
    if (controllers.empty()) {
      WalkUp(mount, group, [&](const fs::path& folder) { ReadVersion2(folder, least); });
    } else if (HasCpu(controllers)) {
      for (const std::string& name : {controllers, std::string("cpu")})
        WalkUp(mount / name, group, [&](const fs::path& folder) { ReadVersion1(folder, least); });
    }
  }
  return least;
}

int ShareOfCores(int cores, int sharers, std::optional<double> quota, int quota_sharers) {
  int threads = cores / std::max(1, sharers);
  // Part of a CPU is no thread's worth: throttled threads hold up the others.
  if (quota.has_value()) threads = std::min(threads, static_cast<int>(*quota / quota_sharers));
  return std::max(1, threads);
}

}  // namespace carole::launch
