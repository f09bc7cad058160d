// The command line of Open MPI's mpirun for a job, and the meaning of its exit codes.
#pragma once

#include <string>
#include <vector>

#include "launch/cluster/cluster.h"

namespace carole::launch {

// How ranks share the cores of their host.
struct CoreBinding {
  int cores_per_rank = 0;          // to which each rank is bound; 0: ranks are not bound
  bool allows_more_ranks = false;  // than there are cores
};

// Returns the binding for ranks on this machine. Each rank gets its own cores if that leaves none
// idle. `usable_cores`: those that this process may use. `machine_cores`: all of them. mpirun
// assigns cores of the whole machine, so it must not bind ranks to only a part of them.
CoreBinding ChooseBinding(int ranks, int usable_cores, int machine_cores);

struct MpirunOptions {
  std::string mpirun;      // path of the program
  std::string hostfile;    // path; "": the ranks run on this machine
  std::string ssh;         // path of the program; "": the job has only this host
  std::string ssh_config;  // path, without spaces
  int ranks = 0;
  bool is_root = false;
  CoreBinding binding;
  std::string network;                // interfaces or subnets, "eth1" or "10.0.0.0/8"; "": all
  std::string ports;                  // "FIRST-LAST" if only these ports are open; "": any port
  std::vector<std::string> exported;  // names of variables that all ranks get from this process
  std::vector<std::string> command;   // of each rank: program and arguments
};

// Returns the argument vector of mpirun. A lost host is noticed within 10 s. Ranks that are not
// bound to cores take their shares of the cores by themselves. Throws UsageError if `network` or
// `ports` is malformed.
std::vector<std::string> MpirunCommand(const MpirunOptions& options);

// Returns the text for --hostfile. The first host, where mpirun itself runs, is listed as
// localhost.
std::string JobHostfile(const Cluster& cluster);

// Exit code of mpirun (Open MPI 4) if a host is gone. Open MPI 5 exits with 213, or with 0.
inline constexpr int kLostDaemon = 205;

// Returns whether to try again from the last checkpoint: a rank reported a lost peer (69), a rank
// was killed (137), a daemon was lost (205, 213) or could not be started (255).
bool IsWorthRestarting(int exit_code);

// Translates mpirun's exit code into the job's. The program's own codes stay. mpirun's codes for
// lost and unreachable daemons (205, 213, 255) become 69.
int JobExitCode(int exit_code);

}  // namespace carole::launch
