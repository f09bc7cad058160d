// carole hostfile: a job's TF_CONFIG as mpirun and ssh want it. Reads, prints, touches nothing.
#include "launch/hostfile.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "launch/tf_config.h"
#include "src/commands/command_line.h"
#include "src/commands/commands.h"
#include "src/core/error.h"

namespace carole::commands {
namespace {

constexpr int kMaxGpus = 1024;

// At most one byte more than ParseTfConfig() takes, so that an endless file ends in its error.
std::string ReadTfConfigFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw DiskError(fmt::format("[tf_config] {}: {}", path, std::strerror(errno)));
  std::string text(launch::kMaxTfConfigBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) throw DiskError(fmt::format("[tf_config] {}: {}", path, std::strerror(errno)));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

// `flag` is JSON or @FILE.
std::string ReadTfConfig(const CommandLine& line, const std::string& flag) {
  if (line.Given("tf_config"))
    return flag.starts_with('@') ? ReadTfConfigFile(flag.substr(1)) : flag;
  const char* variable = std::getenv("TF_CONFIG");
  return variable == nullptr ? "" : variable;
}

}  // namespace

int Hostfile(const Arguments& arguments) {
  std::string tf_config;
  std::string format = "hostfile";
  int num_gpus = 0;
  CommandLine line("carole hostfile",
                   "Prints the machines that TF_CONFIG names, rank 0's first, for mpirun or ssh.");
  line.Add("tf_config", tf_config, "JSON, or @FILE; else the environment's TF_CONFIG");
  line.Add("format", format, launch::FormatNames());
  line.Add("num_gpus", num_gpus, "slots of every machine; 0: one for each task that trains");
  if (!line.Parse(arguments)) return 0;
  if (num_gpus < 0 || num_gpus > kMaxGpus)
    throw UsageError(
        fmt::format("[flags] --num_gpus: out of range: got {}, want 0 to {}", num_gpus, kMaxGpus));
  const launch::Format parsed_format = launch::ParseFormat(format);
  const launch::Cluster cluster = launch::ParseTfConfig(ReadTfConfig(line, tf_config), num_gpus);
  fmt::print("{}", launch::PrintCluster(cluster, parsed_format));
  return 0;
}

}  // namespace carole::commands
