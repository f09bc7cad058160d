// Where the commands of a job find its TF_CONFIG.
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

// Whether the flag or the environment gives one.
bool HasTfConfig(const CommandLine& line);

// What the flag says, JSON or @FILE, else the environment. Throws UsageError, DiskError and what
// launch::ParseTfConfig() throws.
launch::Cluster ReadCluster(const CommandLine& line, const TfConfigFlags& flags);

}  // namespace carole::commands
