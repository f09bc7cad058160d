#include "launch/job/mpirun.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "launch/cluster/message_text.h"
#include "src/core/error.h"

namespace carole::launch {
namespace {

constexpr int kLostPeer = static_cast<int>(ExitCode::kUnavailable);
constexpr int kKilledRank = 128 + 9;
constexpr int kLostDaemon5 = 213;  // of Open MPI 5
constexpr int kUnreachable = 255;  // a daemon could not be started

using Arguments = std::vector<std::string>;

constexpr std::string_view kNcclInterfaces = "NCCL_SOCKET_IFNAME";

void AddMcaParameter(Arguments& arguments, const std::string& name, const std::string& value) {
  arguments.insert(arguments.end(), {"--mca", name, value});
}

void AddBinding(Arguments& arguments, const CoreBinding& binding) {
  if (binding.allows_more_ranks) arguments.emplace_back("--oversubscribe");
  if (binding.cores_per_rank > 0) {
    arguments.insert(arguments.end(),
                     {"--map-by", fmt::format("slot:PE={}", binding.cores_per_rank), "--bind-to",
                      "core:if-supported"});
  } else {
    arguments.insert(arguments.end(), {"--map-by", "slot", "--bind-to", "none"});
  }
}

void AddNetwork(Arguments& arguments, const MpirunOptions& options) {
  const std::string& network = options.network;
  if (network.empty()) return;
  const bool is_valid =
      network.front() != '-' && std::all_of(network.begin(), network.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               std::string_view("._-/,:").find(c) != std::string_view::npos;
      });
  if (!is_valid)
    throw UsageError({.tag = "flags",
                      .option = "network",
                      .problem = "bad interface",
                      .got = Quote(network),
                      .want = "names or subnets such as eth1 or 10.0.0.0/8"});
  AddMcaParameter(arguments, "oob_tcp_if_include", network);
  AddMcaParameter(arguments, "btl_tcp_if_include", network);
  const bool is_set =
      std::ranges::find(options.exported, kNcclInterfaces) != options.exported.end();
  if (network.find('/') == std::string::npos && !is_set)  // NCCL does not understand subnets
    arguments.insert(arguments.end(), {"-x", fmt::format("{}=={}", kNcclInterfaces, network)});
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
  throw UsageError({.tag = "flags",
                    .option = "ports",
                    .problem = "bad range",
                    .got = Quote(ports),
                    .want = fmt::format("FIRST-LAST with at least {} ports from {} to {}", kFewest,
                                        kLowest, kHighest)});
}

// Splits the range: the first half is for connections between daemons, the second for the messages
// of the ranks.
void AddPorts(Arguments& arguments, const std::string& ports) {
  if (ports.empty()) return;
  const auto [first, last] = ParsePorts(ports);
  const int middle = first + (last - first) / 2;
  AddMcaParameter(arguments, "oob_tcp_dynamic_ipv4_ports", fmt::format("{}-{}", first, middle));
  AddMcaParameter(arguments, "btl_tcp_port_min_v4", std::to_string(middle + 1));
  AddMcaParameter(arguments, "btl_tcp_port_range_v4", std::to_string(last - middle));
}

void AddSsh(Arguments& arguments, const MpirunOptions& options) {
  if (options.ssh.empty()) return;
  AddMcaParameter(arguments, "plm_rsh_agent", options.ssh);
  AddMcaParameter(arguments, "plm_rsh_args", "-F " + options.ssh_config);
  // Daemons must not start other daemons: only the chief has the ssh configuration.
  AddMcaParameter(arguments, "plm_rsh_no_tree_spawn", "1");
  // Open MPI 4 reads the parameter of orte, Open MPI 5 that of prte. Each ignores the other one.
  for (const char* launcher : {"orte", "prte"})
    AddMcaParameter(arguments, fmt::format("{}_keep_fqdn_hostnames", launcher), "1");
  // Open MPI 4 sends the host names as a pattern. The default pattern allows no '_' in them.
  AddMcaParameter(arguments, "regx", "naive");
  // A silent host counts as lost after 5 + 3 * 1 seconds.
  AddMcaParameter(arguments, "oob_tcp_keepalive_time", "5");
  AddMcaParameter(arguments, "oob_tcp_keepalive_intvl", "1");
  AddMcaParameter(arguments, "oob_tcp_keepalive_probes", "3");
}

}  // namespace

CoreBinding ChooseBinding(int ranks, int usable_cores, int machine_cores) {
  const bool is_even = usable_cores == machine_cores && usable_cores % ranks == 0;
  return {.cores_per_rank = is_even ? usable_cores / ranks : 0,
          .allows_more_ranks = ranks > usable_cores};
}

std::vector<std::string> MpirunCommand(const MpirunOptions& options) {
  Arguments arguments{options.mpirun};
  if (options.is_root) arguments.emplace_back("--allow-run-as-root");
  if (!options.hostfile.empty())
    arguments.insert(arguments.end(), {"--hostfile", options.hostfile});
  arguments.insert(arguments.end(), {"-n", std::to_string(options.ranks)});
  AddBinding(arguments, options.binding);
  AddMcaParameter(arguments, "btl_base_warn_component_unused", "0");
  AddSsh(arguments, options);
  AddNetwork(arguments, options);
  AddPorts(arguments, options.ports);
  for (const std::string& name : options.exported) arguments.insert(arguments.end(), {"-x", name});
  arguments.insert(arguments.end(), options.command.begin(), options.command.end());
  return arguments;
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
