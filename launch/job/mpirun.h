// Open MPI's mpirun for the hosts of a job: what it is told, and what its exit code means.
#pragma once

#include <string>
#include <vector>

#include "launch/cluster/cluster.h"

namespace carole::launch {

struct MpirunOptions {
  std::string mpirun;      // path
  std::string hostfile;    // path
  std::string ssh;         // path; "": this machine alone
  std::string ssh_config;  // path, without spaces
  int ranks = 0;
  bool is_root = false;
  std::string network;                // interfaces or subnets, "eth1" or "10.0.0.0/8"; "": all
  std::string ports;                  // "FIRST-LAST", where only these are open; "": any
  std::vector<std::string> exported;  // names of variables that all ranks get from here
  std::vector<std::string> command;   // of each rank: program and arguments
};

// A lost machine is noticed within 10 s, and ranks are not bound: each takes its share of the cores
// by itself. Throws UsageError for a network or ports that are no such thing.
std::vector<std::string> MpirunWords(const MpirunOptions& options);

// Hosts for --hostfile: the first, where mpirun itself runs, as localhost.
std::string JobHostfile(const Cluster& cluster);

// mpirun's code where a machine is gone; Open MPI 5's is 213, or 0.
inline constexpr int kLostDaemon = 205;

// Whether to try again from the last checkpoint: a machine, a daemon or a rank was lost (69, 137,
// 205, 213), or a daemon could not be started (255).
bool IsWorthRestarting(int exit_code);

// The program's own codes stay; mpirun's for lost and unreachable daemons (205, 213, 255)
// become 69.
int JobExitCode(int exit_code);

}  // namespace carole::launch
