#include "launch/cluster/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "launch/cluster/address.h"
#include "src/core/check.h"
#include "src/core/error.h"

namespace carole::launch {
namespace {

std::string MachineOf(const Task& task) {
  return IsLoopback(task.host) ? "localhost" : task.host;  // all of its names mean one machine
}

void SetAliases(std::vector<Host>& hosts) {
  const bool has_ipv6 = std::ranges::any_of(hosts, [](const Host& h) { return IsIpv6(h.name); });
  for (size_t h = 0; h < hosts.size(); ++h)
    hosts[h].alias = has_ipv6 ? fmt::format("t{}", h) : hosts[h].name;
}

}  // namespace

bool Trains(const Task& task) { return task.role == Role::kChief || task.role == Role::kWorker; }

const char* RoleName(Role role) {
  switch (role) {
    case Role::kChief:
      return "chief";
    case Role::kWorker:
      return "worker";
    case Role::kParameterServer:
      return "ps";
    case Role::kEvaluator:
      return "evaluator";
  }
  return "unknown";
}

int Cluster::size() const {
  return hosts.empty() ? 0 : hosts.back().first_rank + hosts.back().slots;
}

Cluster MakeCluster(std::vector<Task> tasks, int num_gpus) {
  Cluster cluster;
  std::map<std::string, size_t> seen;  // machine -> index in hosts
  for (Task& task : tasks) {
    if (!Trains(task)) continue;
    const auto [entry, is_new] = seen.emplace(MachineOf(task), cluster.hosts.size());
    if (is_new)
      cluster.hosts.push_back(
          {.name = task.host, .alias = {}, .port = task.port, .slots = num_gpus});
    Host& host = cluster.hosts[entry->second];
    // Counted from the host's first rank, which is known once all slots are.
    if (num_gpus == 0) task.rank = host.slots++;
    if (num_gpus > 0) task.rank = is_new ? 0 : -1;
  }
  CAROLE_CHECK(!cluster.hosts.empty(), "a cluster needs a chief or a worker");
  for (size_t h = 1; h < cluster.hosts.size(); ++h)
    cluster.hosts[h].first_rank = cluster.hosts[h - 1].first_rank + cluster.hosts[h - 1].slots;
  for (Task& task : tasks) {
    if (task.rank >= 0) task.rank += cluster.hosts[seen.at(MachineOf(task))].first_rank;
  }
  SetAliases(cluster.hosts);
  cluster.tasks = std::move(tasks);
  return cluster;
}

Cluster MakeLocalCluster(int num_gpus) {
  return MakeCluster({{.role = Role::kChief, .host = "localhost"}}, num_gpus);
}

void RequireWholeJob(const Cluster& cluster, int num_processes) {
  if (num_processes != 1) return;
  const bool trains = !cluster.me.has_value() || Trains(*cluster.me);
  if (cluster.size() == 1 && trains) return;
  const std::string me = cluster.me.has_value()
                             ? fmt::format("{} {}", RoleName(cluster.me->role), cluster.me->index)
                             : "a task without a name";
  throw ConfigError(fmt::format(
      "[cluster] job: {}: got 1 rank, want {} on {} machines ({} is this one); start it with "
      "carole launch -- train",
      trains ? "each of its processes believes to be alone" : "this process takes no part in it",
      cluster.size(), cluster.hosts.size(), me));
}

}  // namespace carole::launch
