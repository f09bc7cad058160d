// carole hostfile: a job's TF_CONFIG as mpirun and ssh want it. Reads, prints, touches nothing.
#include "launch/hostfile.h"

#include <fmt/format.h>

#include "src/commands/commands.h"
#include "src/commands/tf_config_flag.h"

namespace carole::commands {

int Hostfile(const Arguments& arguments) {
  TfConfigFlags flags;
  std::string format = "hostfile";
  CommandLine line("carole hostfile",
                   "Prints the machines that TF_CONFIG names, rank 0's first, for mpirun or ssh.");
  AddTfConfigFlags(line, flags);
  line.Add("format", format, launch::FormatNames());
  if (!line.Parse(arguments)) return 0;
  const launch::Format parsed_format = launch::ParseFormat(format);
  fmt::print("{}", launch::PrintCluster(ReadCluster(line, flags), parsed_format));
  return 0;
}

}  // namespace carole::commands
