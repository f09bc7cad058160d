// Reads a Slurm allocation as a cluster from the variables that Slurm sets, without calling
// scontrol.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/cluster/cluster.h"
#include "launch/cluster/environment.h"

namespace carole::launch {

// Expands a compressed node list: "n[0-1,7],login" becomes n0 n1 n7 login. A name may have several
// brackets. Numbers keep their leading zeros: "r[08-10]". Returns at most 65536 names, each checked
// by ParseHost(). `where` is the start of error messages. Throws ConfigError if the list is
// malformed.
std::vector<std::string> ExpandNodeList(const std::string& where, std::string_view text);

// Expands compressed counts: "2(x3),1" becomes 2 2 2 1. Throws ConfigError if the list is
// malformed.
std::vector<int> ExpandCounts(const std::string& where, std::string_view text);

// Returns the nodes of the step if srun started this process, otherwise those of the whole
// allocation. Node 0 leads. With num_gpus > 0 every node has this many slots, otherwise as many as
// Slurm gives it tasks. Returns nullopt outside of a Slurm job. Throws ConfigError if the variables
// are malformed or contradict each other.
std::optional<Cluster> ReadSlurmCluster(const GetEnvFunction& get, int num_gpus);

}  // namespace carole::launch
