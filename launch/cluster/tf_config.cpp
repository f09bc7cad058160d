#include "launch/cluster/tf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "launch/cluster/address.h"
#include "launch/cluster/strict_json.h"
#include "src/core/error.h"
#include "src/core/text/join_names.h"
#include "src/core/text/nearest_name.h"
#include "src/core/text/parse_number.h"

namespace carole::launch {
namespace {

using Json = nlohmann::ordered_json;
using Names = std::vector<std::string>;

constexpr int kMaxIndex = 999'999;

struct JobName {
  const char* name;
  Role role;
};
constexpr JobName kJobNames[] = {{"chief", Role::kChief},
                                 {"master", Role::kChief},
                                 {"worker", Role::kWorker},
                                 {"ps", Role::kParameterServer},
                                 {"evaluator", Role::kEvaluator}};

// Keys that TensorFlow or a cloud platform sets. Only cluster, task, type and index matter here;
// the others are accepted and ignored.
const Names kTopKeys = {"cluster",   "task",           "environment",         "job",
                        "rpc_layer", "session_master", "eval_session_master", "service",
                        "model_dir"};
const Names kTaskKeys = {"type", "index", "trial", "cloud"};

std::string WithTag(const std::string& path) { return "[tf_config] " + path; }

[[noreturn]] void Refuse(const std::string& path, std::string_view what, const std::string& got,
                         std::string_view want) {
  throw ConfigError(fmt::format("{}: {}: got {}, want {}", WithTag(path), what, got, want));
}

void RequireObject(const std::string& path, const Json& value, std::string_view want) {
  if (!value.is_object()) Refuse(path, "not an object", DescribeJson(value), want);
}

void RequireKeys(const std::string& path, const Json& object, const Names& allowed) {
  for (const auto& [key, value] : object.items()) {
    if (std::find(allowed.begin(), allowed.end(), key) != allowed.end()) continue;
    const std::string nearest = NearestName(key, allowed);
    throw ConfigError(fmt::format("{}: unknown key: got {}, want one of {}{}",
                                  WithTag(JoinJsonPath(path, key)), DescribeJson(value),
                                  JoinTexts(allowed),
                                  nearest.empty() ? "" : "; did you mean " + nearest + "?"));
  }
}

Names AllJobNames() {
  Names names;
  for (const JobName& job : kJobNames) names.emplace_back(job.name);
  return names;
}

Role ParseRole(const Json& type) {
  for (const JobName& job : kJobNames) {
    if (type == job.name) return job.role;
  }
  Refuse("task.type", "unknown type", DescribeJson(type),
         fmt::format("one of {}", JoinNames(kJobNames)));
}

// Returns the tasks of one list in "cluster".
std::vector<Task> ParseJob(const std::string& name, Role role, const Json& list) {
  const std::string path = JoinJsonPath("cluster", name);
  if (!list.is_array()) Refuse(path, "not a list", DescribeJson(list), "a list of \"HOST:PORT\"");
  const bool is_single = role == Role::kChief || role == Role::kEvaluator;
  if (is_single && list.size() > 1)
    Refuse(path, "too many tasks", DescribeJson(list), "a list of at most 1");
  std::vector<Task> tasks;
  for (const Json& entry : list) {
    const int index = static_cast<int>(tasks.size());
    const std::string entry_path = fmt::format("{}[{}]", path, index);
    if (!entry.is_string())
      Refuse(entry_path, "not a string", DescribeJson(entry), "\"HOST:PORT\"");
    const Address address = ParseAddress(WithTag(entry_path), entry.get_ref<const std::string&>());
    tasks.push_back({.role = role, .index = index, .host = address.host, .port = address.port});
  }
  return tasks;
}

// Returns the path of a task in the JSON. `leader` is the name of the chief there: "chief" or
// "master".
std::string PathOf(const Task& task, const char* leader) {
  const char* name = task.role == Role::kChief ? leader : RoleName(task.role);
  return fmt::format("cluster.{}[{}]", name, task.index);
}

// Throws ConfigError if two tasks have the same address: they cannot both listen there.
void RequireDistinctAddresses(const std::vector<Task>& tasks, const char* leader) {
  std::map<std::pair<std::string, int>, const Task*> seen;
  for (const Task& task : tasks) {
    const auto [entry, is_new] = seen.try_emplace({task.host, task.port}, &task);
    if (is_new) continue;
    Refuse(
        PathOf(task, leader), "duplicate address",
        fmt::format("{} port {}, as for {}", task.host, task.port, PathOf(*entry->second, leader)),
        "another host or port");
  }
}

// Throws ConfigError if a job of several hosts calls one of them localhost: each host would
// understand itself.
void RequireNoLoopback(const std::vector<Task>& tasks, const char* leader) {
  const Task* loopback = nullptr;
  const Task* other = nullptr;
  for (const Task& task : tasks) {
    if (IsTrainingTask(task)) (IsLoopback(task.host) ? loopback : other) = &task;
  }
  if (loopback == nullptr || other == nullptr) return;
  Refuse(PathOf(*loopback, leader), "loopback address in a job of several hosts",
         fmt::format("{} next to {}", loopback->host, other->host),
         "a name or an address that is valid on all hosts");
}

std::vector<Task> ParseTasks(const Json& cluster) {
  RequireKeys("cluster", cluster, AllJobNames());
  if (cluster.contains("master") && cluster.contains("chief"))
    Refuse("cluster.master", "two chiefs", "both master and chief", "one of them");
  std::vector<Task> tasks;
  for (const JobName& job : kJobNames) {
    if (!cluster.contains(job.name)) continue;
    const std::vector<Task> more = ParseJob(job.name, job.role, cluster.at(job.name));
    tasks.insert(tasks.end(), more.begin(), more.end());
  }
  const char* leader = cluster.contains("master") ? "master" : "chief";
  RequireDistinctAddresses(tasks, leader);
  RequireNoLoopback(tasks, leader);
  if (std::none_of(tasks.begin(), tasks.end(), IsTrainingTask))
    Refuse("cluster", "no training task", "no chief, master or worker", "at least one of them");
  return tasks;
}

int ParseIndex(const Json& index) {
  int64_t value = -1;
  if (index.is_number_unsigned() && index.get<uint64_t>() <= kMaxIndex) value = index.get<int>();
  if (index.is_string())
    value = ParseNumber<int64_t>(index.get_ref<const std::string&>()).value_or(-1);
  if (value < 0 || value > kMaxIndex)
    Refuse("task.index", "bad index", DescribeJson(index), "a whole number of at least 0");
  return static_cast<int>(value);
}

Task FindTask(const std::vector<Task>& tasks, Role role, int index) {
  int count = 0;
  for (const Task& task : tasks) {
    if (task.role != role) continue;
    if (task.index == index) return task;
    ++count;
  }
  if (role == Role::kEvaluator && count == 0 && index == 0) return {.role = role};
  const std::string got = fmt::format("{} {}", RoleName(role), index);
  if (count == 0 && role != Role::kEvaluator)
    Refuse("task.type", "not in the cluster", got, "a type that the cluster lists");
  Refuse("task.index", "out of range", got,
         fmt::format("an index from 0 to {}, as listed in cluster", std::max(count, 1) - 1));
}

std::optional<Task> ParseOwnTask(const Json& config, const Cluster& cluster, bool is_local) {
  if (!config.contains("task")) return std::nullopt;
  const Json& task = config.at("task");
  RequireObject("task", task, "an object with type and index");
  RequireKeys("task", task, kTaskKeys);
  if (!task.contains("type") && !task.contains("index")) return std::nullopt;
  for (const char* key : {"type", "index"}) {
    if (!task.contains(key))
      Refuse(JoinJsonPath("task", key), "missing", "none", "both task.type and task.index");
  }
  Role role = ParseRole(task.at("type"));
  const int index = ParseIndex(task.at("index"));
  // TensorFlow calls a process without a cluster "worker 0".
  if (is_local && role == Role::kWorker && index == 0) role = Role::kChief;
  return FindTask(cluster.tasks, role, index);
}

}  // namespace

bool IsBlank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

Cluster ParseTfConfig(std::string_view text, int num_gpus) {
  if (IsBlank(text)) return MakeLocalCluster(num_gpus);
  const Json config = ParseStrictJson(WithTag("TF_CONFIG"), text, kMaxTfConfigBytes);
  RequireObject("TF_CONFIG", config, "an object with cluster and task");
  RequireKeys("", config, kTopKeys);
  std::vector<Task> tasks;
  const bool is_local = !config.contains("cluster") || config.at("cluster") == Json::object();
  if (!is_local) {
    RequireObject("cluster", config.at("cluster"), "an object of lists of \"HOST:PORT\"");
    tasks = ParseTasks(config.at("cluster"));
  }
  Cluster cluster = is_local ? MakeLocalCluster(num_gpus) : MakeCluster(std::move(tasks), num_gpus);
  cluster.me = ParseOwnTask(config, cluster, is_local);
  return cluster;
}

}  // namespace carole::launch
