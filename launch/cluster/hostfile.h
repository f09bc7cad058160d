// Prints a cluster as text for the programs that start its ranks.
//
//   hostfile    for mpirun --hostfile: "h0 slots=2", one host per line, in rank order
//   host-list   for mpirun --host: "h0:2,h1:2"
//   ssh-config  for ssh -F: name, address and port of each host
//   json        hosts, tasks, and which task this process is
//
// All formats use the alias of a host (Host::alias). The ssh-config maps aliases to addresses.
#pragma once

#include <string>

#include "launch/cluster/cluster.h"

namespace carole::launch {

enum class Format { kHostfile, kHostList, kSshConfig, kJson };

// Throws UsageError, whose text lists the formats, if there is no such format.
Format ParseFormat(const std::string& name);

// Returns "hostfile, host-list, …" for a help text.
std::string FormatNames();

// Returns the lines of one host in an ssh configuration file (ssh -F): "Host", "HostName" and,
// unless the port is 0, "Port".
std::string SshHostBlock(const std::string& name, const std::string& host, int port);

// Returns the text of the cluster in this format. It ends with a newline.
std::string ClusterText(const Cluster& cluster, Format format);

}  // namespace carole::launch
