// carole hostfile: the machines of a job as mpirun and ssh want them. Reads, prints, touches
// nothing.
#include "launch/cluster/hostfile.h"

#include <fmt/format.h>

#include <cstdlib>

#include "launch/cluster/slurm.h"
#include "src/commands/cli/commands.h"
#include "src/commands/flags/tf_config_flag.h"

namespace carole::commands {
namespace {

// TF_CONFIG's, else what Slurm gives this job, else this machine alone.
launch::Cluster FindCluster(const CommandLine& line, const TfConfigFlags& flags) {
  const launch::Cluster described = ReadCluster(line, flags);
  if (HasTfConfig(line)) return described;
  return launch::ReadSlurm(std::getenv, flags.num_gpus).value_or(described);
}

}  // namespace

int Hostfile(const Arguments& arguments) {
  TfConfigFlags flags;
  std::string format = "hostfile";
  CommandLine line(
      "carole hostfile",
      "Prints the machines that TF_CONFIG, or else Slurm, names, rank 0's first, for mpirun "
      "or ssh.");
  AddTfConfigFlags(line, flags);
  line.Add("format", format, launch::FormatNames());
  if (!line.Parse(arguments)) return 0;
  const launch::Format parsed_format = launch::ParseFormat(format);
  fmt::print("{}", launch::ClusterText(FindCluster(line, flags), parsed_format));
  return 0;
}

}  // namespace carole::commands
