#include "src/commands/flags/tf_config_flag.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "launch/cluster/tf_config.h"
#include "src/core/error.h"

namespace carole::commands {
namespace {

constexpr int kMaxGpus = 1024;

// At most one byte more than ParseTfConfig() takes, so that an endless file ends in its error.
std::string ReadTfConfigFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw DiskError(
        fmt::format("[tf_config] --tf_config @{}: cannot be read: {}", path, std::strerror(errno)));
  std::string text(launch::kMaxTfConfigBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad())
    throw DiskError(
        fmt::format("[tf_config] --tf_config @{}: cannot be read: {}", path, std::strerror(errno)));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

std::string ReadTfConfig(const CommandLine& line, const std::string& flag) {
  if (line.Given("tf_config"))
    return flag.starts_with('@') ? ReadTfConfigFile(flag.substr(1)) : flag;
  const char* variable = std::getenv("TF_CONFIG");
  return variable == nullptr ? "" : variable;
}

}  // namespace

void AddTfConfigFlags(CommandLine& line, TfConfigFlags& flags) {
  line.Add("tf_config", flags.tf_config, "JSON, or @FILE; else the environment's TF_CONFIG");
  line.Add("num_gpus", flags.num_gpus, "slots of every machine; 0: one for each task that trains");
}

bool HasTfConfig(const CommandLine& line) {
  const char* variable = std::getenv("TF_CONFIG");
  return line.Given("tf_config") || (variable != nullptr && !launch::IsBlank(variable));
}

launch::Cluster ReadCluster(const CommandLine& line, const TfConfigFlags& flags) {
  if (flags.num_gpus < 0 || flags.num_gpus > kMaxGpus)
    throw UsageError(fmt::format("[flags] --num_gpus: out of range: got {}, want 0 to {}",
                                 flags.num_gpus, kMaxGpus));
  return launch::ParseTfConfig(ReadTfConfig(line, flags.tf_config), flags.num_gpus);
}

}  // namespace carole::commands
