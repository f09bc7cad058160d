#include "launch/job/mpirun.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "launch/cluster/text.h"
#include "src/core/error.h"

namespace carole::launch {
namespace {

constexpr int kLostPeer = static_cast<int>(ExitCode::kUnavailable);
constexpr int kKilledRank = 128 + 9;
constexpr int kLostDaemon5 = 213;  // Open MPI 5's
constexpr int kUnreachable = 255;

using Words = std::vector<std::string>;

constexpr std::string_view kNcclInterfaces = "NCCL_SOCKET_IFNAME";

void AddParameter(Words& words, const std::string& name, const std::string& value) {
  words.insert(words.end(), {"--mca", name, value});
}

void AddNetwork(Words& words, const MpirunOptions& options) {
  const std::string& network = options.network;
  if (network.empty()) return;
  const bool is_good =
      network.front() != '-' && std::all_of(network.begin(), network.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               std::string_view("._-/,:").find(c) != std::string_view::npos;
      });
  if (!is_good)
    throw UsageError(
        fmt::format("[flags] --network: no interface: got {}, want names or subnets, "
                    "as eth1 or 10.0.0.0/8",
                    Quote(network)));
  AddParameter(words, "oob_tcp_if_include", network);
  AddParameter(words, "btl_tcp_if_include", network);
  const bool is_said =
      std::ranges::find(options.exported, kNcclInterfaces) != options.exported.end();
  if (network.find('/') == std::string::npos && !is_said)  // NCCL knows no subnets
    words.insert(words.end(), {"-x", fmt::format("{}=={}", kNcclInterfaces, network)});
}

std::pair<int, int> ParsePorts(const std::string& ports) {
  constexpr int kLowest = 1024, kHighest = 65535, kFewest = 20;
  int first = 0, last = 0;
  const char* end = ports.data() + ports.size();
  const auto [dash, error] = std::from_chars(ports.data(), end, first);
  if (error == std::errc() && dash != end && *dash == '-') {
    const auto [rest, last_error] = std::from_chars(dash + 1, end, last);
    if (last_error == std::errc() && rest == end && first >= kLowest && last <= kHighest &&
        last - first + 1 >= kFewest)
      return {first, last};
  }
  throw UsageError(
      fmt::format("[flags] --ports: no range: got {}, want FIRST-LAST, {} ports or "
                  "more from {} to {}",
                  Quote(ports), kFewest, kLowest, kHighest));
}

// Half for the daemons, half for the ranks' messages.
void AddPorts(Words& words, const std::string& ports) {
  if (ports.empty()) return;
  const auto [first, last] = ParsePorts(ports);
  const int middle = first + (last - first) / 2;
  AddParameter(words, "oob_tcp_dynamic_ipv4_ports", fmt::format("{}-{}", first, middle));
  AddParameter(words, "btl_tcp_port_min_v4", std::to_string(middle + 1));
  AddParameter(words, "btl_tcp_port_range_v4", std::to_string(last - middle));
}

void AddSsh(Words& words, const MpirunOptions& options) {
  if (options.ssh.empty()) return;
  AddParameter(words, "plm_rsh_agent", options.ssh);
  AddParameter(words, "plm_rsh_args", "-F " + options.ssh_config);
  AddParameter(words, "plm_rsh_no_tree_spawn", "1");  // only the chief has the key's config
  for (const char* launcher : {"orte", "prte"})  // of Open MPI 4 and 5, which ignore the other's
    AddParameter(words, fmt::format("{}_keep_fqdn_hostnames", launcher), "1");
  AddParameter(words, "oob_tcp_keepalive_time", "5");
  AddParameter(words, "oob_tcp_keepalive_intvl", "1");
  AddParameter(words, "oob_tcp_keepalive_probes", "3");
}

}  // namespace

std::vector<std::string> MpirunWords(const MpirunOptions& options) {
  Words words{options.mpirun};
  if (options.is_root) words.emplace_back("--allow-run-as-root");
  words.insert(words.end(), {"--hostfile", options.hostfile, "-n", std::to_string(options.ranks),
                             "--map-by", "slot", "--bind-to", "none"});
  AddParameter(words, "btl_base_warn_component_unused", "0");
  AddSsh(words, options);
  AddNetwork(words, options);
  AddPorts(words, options.ports);
  for (const std::string& name : options.exported) words.insert(words.end(), {"-x", name});
  words.insert(words.end(), options.command.begin(), options.command.end());
  return words;
}

std::string JobHostfile(const Cluster& cluster) {
  std::string text;
  for (const Host& host : cluster.hosts)
    text +=
        fmt::format("{} slots={}\n", host.first_rank == 0 ? "localhost" : host.alias, host.slots);
  return text;
}

bool IsWorthRestarting(int exit_code) {
  return exit_code == kLostPeer || exit_code == kKilledRank || exit_code == kLostDaemon ||
         exit_code == kLostDaemon5 || exit_code == kUnreachable;
}

int JobExitCode(int exit_code) {
  const bool is_lost =
      exit_code == kLostDaemon || exit_code == kLostDaemon5 || exit_code == kUnreachable;
  return is_lost ? kLostPeer : exit_code;
}

}  // namespace carole::launch
