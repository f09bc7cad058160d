// carole hostfile: prints the hosts of a job in the formats of mpirun and ssh. It only reads and
// prints.
#include "launch/cluster/hostfile.h"

#include <fmt/format.h>

#include <cstdlib>

#include "launch/cluster/slurm.h"
#include "src/commands/cli/commands.h"
#include "src/commands/flags/tf_config_flag.h"

namespace carole::commands {
namespace {

// Returns the hosts of TF_CONFIG, else those of the Slurm job, else this host alone.
launch::Cluster FindCluster(const CommandLine& line, const TfConfigFlags& flags) {
  const launch::Cluster described = ReadCluster(line, flags);
  if (HasTfConfig(line)) return described;
  return launch::ReadSlurmCluster(std::getenv, flags.num_gpus).value_or(described);
}

}  // namespace

int Hostfile(const Arguments& arguments) {
  TfConfigFlags flags;
  std::string format = "hostfile";
  CommandLine line(
      "carole hostfile",
      "Prints the hosts that TF_CONFIG (or else Slurm) describes, rank 0's first, for mpirun or "
      "ssh.",
      {"carole hostfile > hosts; mpirun --hostfile hosts carole train --config=run.toml",
       "carole hostfile --tf_config=@tf_config.json"});
  line.Group("Job");
  AddTfConfigFlags(line, flags);
  line.Add("format", format, "Format of the output. " + OneOf(launch::FormatNames()),
           HelpLevel::kBasic);
  if (!line.Parse(arguments)) return 0;
  const launch::Format parsed_format = launch::ParseFormat(format);
  fmt::print("{}", launch::ClusterText(FindCluster(line, flags), parsed_format));
  return 0;
}

}  // namespace carole::commands
