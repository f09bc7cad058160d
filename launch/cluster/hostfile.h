// A cluster as text for those who start its ranks.
//
//   hostfile    mpirun --hostfile: "h0 slots=2", a machine a line, in rank order
//   host-list   mpirun --host: "h0:2,h1:2"
//   ssh-config  ssh -F: name, address and port of each machine
//   json        hosts, tasks, and which of them this process is
//
// Machines have their aliases (Host) in all formats; the ssh-config says what they mean.
#pragma once

#include <string>

#include "launch/cluster/cluster.h"

namespace carole::launch {

enum class Format { kHostfile, kHostList, kSshConfig, kJson };

// Throws UsageError that lists the formats.
Format ParseFormat(const std::string& name);

// "hostfile, host-list, …" for a help text.
std::string FormatNames();

// One host's lines of an ssh configuration file (ssh -F). No Port line is written for port 0.
std::string SshHost(const std::string& name, const std::string& host, int port);

// Ends with a newline.
std::string ClusterText(const Cluster& cluster, Format format);

}  // namespace carole::launch
