// A Slurm allocation as a cluster, from the variables that Slurm sets, without asking scontrol.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/cluster/cluster.h"
#include "launch/cluster/environment.h"

namespace carole::launch {

// "n[0-1,7],login" -> n0 n1 n7 login; brackets may stand several times in a name, and numbers keep
// their zeros: "r[08-10]". At most 65536 names, each checked as ParseHost() does. `where` starts
// the error's text. Throws ConfigError.
std::vector<std::string> ExpandNodeList(const std::string& where, std::string_view text);

// "2(x3),1" -> 2 2 2 1. Throws ConfigError.
std::vector<int> ExpandCounts(const std::string& where, std::string_view text);

// The step's nodes when srun started this process, else the whole allocation's; node 0 leads.
// num_gpus > 0: slots of every node, else as many as Slurm gives tasks. nullopt outside of a job.
std::optional<Cluster> ReadSlurm(const GetVariable& get, int num_gpus);

}  // namespace carole::launch
