// Flags that say where TF_CONFIG is, TensorFlow's JSON description of a job's tasks and hosts.
#pragma once

#include <string>

#include "launch/cluster/cluster.h"
#include "src/commands/cli/command_line.h"

namespace carole::commands {

struct TfConfigFlags {
  std::string tf_config;
  int num_gpus = 0;
};
void AddTfConfigFlags(CommandLine& line, TfConfigFlags& flags);

// Whether the flag or the environment has a TF_CONFIG.
bool HasTfConfig(const CommandLine& line);

// Returns the cluster that the flag (JSON or @FILE) describes, else the environment's TF_CONFIG.
// Throws UsageError, DiskError if the file cannot be read, and what launch::ParseTfConfig() throws.
launch::Cluster ReadCluster(const CommandLine& line, const TfConfigFlags& flags);

}  // namespace carole::commands
