#include "launch/cluster/hostfile.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "launch/cluster/message_text.h"
#include "src/core/error.h"
#include "src/core/text/join_names.h"

namespace carole::launch {
namespace {

using Json = nlohmann::ordered_json;

std::string PrintHostfile(const Cluster& cluster) {
  std::string text;
  for (const Host& host : cluster.hosts) {
    if (host.alias != host.name) text += fmt::format("# {}\n", host.name);
    text += fmt::format("{} slots={}\n", host.alias, host.slots);
  }
  return text;
}

std::string PrintHostList(const Cluster& cluster) {
  std::vector<std::string> entries;
  for (const Host& host : cluster.hosts)
    entries.push_back(fmt::format("{}:{}", host.alias, host.slots));
  return JoinTexts(entries, ",") + "\n";
}

std::string PrintSshConfig(const Cluster& cluster) {
  std::string text;
  for (const Host& host : cluster.hosts) text += SshHostBlock(host.alias, host.name, host.port);
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
  Json json{{"ranks", cluster.size()}, {"hosts", Json::array()}, {"tasks", Json::array()}};
  for (const Host& host : cluster.hosts) {
    Json entry{{"name", host.alias}, {"address", host.name}};
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

std::string SshHostBlock(const std::string& name, const std::string& host, int port) {
  std::string text = fmt::format("Host {}\n  HostName {}\n", name, host);
  if (port > 0) text += fmt::format("  Port {}\n", port);
  return text;
}

std::string FormatNames() { return JoinNames(kFormats); }

Format ParseFormat(const std::string& name) {
  for (const FormatEntry& entry : kFormats) {
    if (name == entry.name) return entry.format;
  }
  throw UsageError({.tag = "flags",
                    .option = "format",
                    .problem = "no such format",
                    .got = Quote(name),
                    .want = "one of " + FormatNames()});
}

std::string ClusterText(const Cluster& cluster, Format format) {
  for (const FormatEntry& entry : kFormats) {
    if (entry.format == format) return entry.print(cluster);
  }
  return "";
}

}  // namespace carole::launch
