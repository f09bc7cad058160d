#include "launch/hostfile.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "launch/address.h"
#include "launch/text.h"
#include "src/core/error.h"

namespace carole::launch {
namespace {

using Json = nlohmann::ordered_json;

std::string PrintHostfile(const Cluster& cluster) {
  const std::vector<std::string> names = LaunchNames(cluster);
  std::string text;
  for (size_t h = 0; h < names.size(); ++h) {
    const Host& host = cluster.hosts[h];
    if (names[h] != host.name) text += fmt::format("# {}\n", host.name);
    text += fmt::format("{} slots={}\n", names[h], host.slots);
  }
  return text;
}

std::string PrintHostList(const Cluster& cluster) {
  const std::vector<std::string> names = LaunchNames(cluster);
  std::vector<std::string> entries;
  for (size_t h = 0; h < names.size(); ++h)
    entries.push_back(fmt::format("{}:{}", names[h], cluster.hosts[h].slots));
  return Join(entries, ",") + "\n";
}

std::string PrintSshConfig(const Cluster& cluster) {
  const std::vector<std::string> names = LaunchNames(cluster);
  std::string text;
  for (size_t h = 0; h < names.size(); ++h) {
    const Host& host = cluster.hosts[h];
    text += fmt::format("Host {}\n  HostName {}\n", names[h], host.name);
    if (host.port > 0) text += fmt::format("  Port {}\n", host.port);
  }
  return text;
}

Json ToJson(const Task& task) {
  Json json{{"type", RoleName(task.role)}, {"index", task.index}};
  if (!task.host.empty()) json["host"] = task.host;
  if (task.port > 0) json["port"] = task.port;
  if (task.rank >= 0) json["rank"] = task.rank;
  return json;
}

std::string PrintJson(const Cluster& cluster) {
  const std::vector<std::string> names = LaunchNames(cluster);
  Json json{{"ranks", cluster.size()}, {"hosts", Json::array()}, {"tasks", Json::array()}};
  for (size_t h = 0; h < names.size(); ++h) {
    const Host& host = cluster.hosts[h];
    Json entry{{"name", names[h]}, {"address", host.name}};
    if (host.port > 0) entry["port"] = host.port;
    entry["slots"] = host.slots;
    entry["first_rank"] = host.first_rank;
    json["hosts"].push_back(std::move(entry));
  }
  for (const Task& task : cluster.tasks) json["tasks"].push_back(ToJson(task));
  json["me"] = cluster.me.has_value() ? ToJson(*cluster.me) : Json();
  return json.dump(2) + "\n";
}

struct FormatEntry {
  const char* name;
  Format format;
  std::string (*print)(const Cluster& cluster);
};
constexpr FormatEntry kFormats[] = {{"hostfile", Format::kHostfile, PrintHostfile},
                                    {"host-list", Format::kHostList, PrintHostList},
                                    {"ssh-config", Format::kSshConfig, PrintSshConfig},
                                    {"json", Format::kJson, PrintJson}};

}  // namespace

std::string FormatNames() {
  std::vector<std::string> names;
  for (const FormatEntry& entry : kFormats) names.emplace_back(entry.name);
  return Join(names);
}

Format ParseFormat(const std::string& name) {
  for (const FormatEntry& entry : kFormats) {
    if (name == entry.name) return entry.format;
  }
  throw UsageError(fmt::format("[flags] --format: no such format: got {}, want one of {}",
                               Quote(name), FormatNames()));
}

std::string PrintCluster(const Cluster& cluster, Format format) {
  for (const FormatEntry& entry : kFormats) {
    if (entry.format == format) return entry.print(cluster);
  }
  return "";
}

std::vector<std::string> LaunchNames(const Cluster& cluster) {
  const bool needs_aliases = std::any_of(cluster.hosts.begin(), cluster.hosts.end(),
                                         [](const Host& host) { return IsIpv6(host.name); });
  std::vector<std::string> names;
  for (const Host& host : cluster.hosts)
    names.push_back(needs_aliases ? fmt::format("t{}", names.size()) : host.name);
  return names;
}

}  // namespace carole::launch
