#include "launch/cluster/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "launch/cluster/address.h"
#include "src/core/check.h"
#include "src/core/error.h"

namespace carole::launch {
namespace {

// Returns the key under which tasks of one host are grouped.
std::string HostKey(const Task& task) {
  return IsLoopback(task.host) ? "localhost" : task.host;  // all loopback names are one host
}

void SetAliases(std::vector<Host>& hosts) {
  const bool has_ipv6 = std::ranges::any_of(hosts, [](const Host& h) { return IsIpv6(h.name); });
  for (size_t h = 0; h < hosts.size(); ++h)
    hosts[h].alias = has_ipv6 ? fmt::format("t{}", h) : hosts[h].name;
}

}  // namespace

bool IsTrainingTask(const Task& task) {
  return task.role == Role::kChief || task.role == Role::kWorker;
}

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
  std::map<std::string, size_t> seen;  // host key -> index in cluster.hosts
  for (Task& task : tasks) {
    if (!IsTrainingTask(task)) continue;
    const auto [entry, is_new] = seen.emplace(HostKey(task), cluster.hosts.size());
    if (is_new)
      cluster.hosts.push_back(
          {.name = task.host, .alias = {}, .port = task.port, .slots = num_gpus});
    Host& host = cluster.hosts[entry->second];
    // The rank within the host for now: the first rank of the host depends on the slots of the
    // hosts before it.
    if (num_gpus == 0) task.rank = host.slots++;
    if (num_gpus > 0) task.rank = is_new ? 0 : -1;
  }
  CAROLE_CHECK(!cluster.hosts.empty(), "a cluster needs a chief or a worker");
  for (size_t h = 1; h < cluster.hosts.size(); ++h)
    cluster.hosts[h].first_rank = cluster.hosts[h - 1].first_rank + cluster.hosts[h - 1].slots;
  for (Task& task : tasks) {
    if (task.rank >= 0) task.rank += cluster.hosts[seen.at(HostKey(task))].first_rank;
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
  const bool is_training = !cluster.me.has_value() || IsTrainingTask(*cluster.me);
  if (cluster.size() == 1 && is_training) return;
  const std::string me = cluster.me.has_value()
                             ? fmt::format("{} {}", RoleName(cluster.me->role), cluster.me->index)
                             : "unnamed";
  throw ConfigError(fmt::format(
      "[cluster] job: {}: got 1 rank, want {} on {} hosts (this task is {}); start the job with "
      "carole launch -- train",
      is_training ? "its processes are not connected" : "this task does not train", cluster.size(),
      cluster.hosts.size(), me));
}

}  // namespace carole::launch
