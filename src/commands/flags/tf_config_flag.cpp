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

// Reads at most one byte more than ParseTfConfig() accepts, so that it reports an endless file.
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
  if (line.IsGiven("tf_config") && flag.starts_with('@')) {
    std::string path = flag.substr(1);
    if (const std::string error = ExpandHome(path); !error.empty())
      throw UsageError("[flags] --tf_config: " + error);
    return ReadTfConfigFile(path);
  }
  if (line.IsGiven("tf_config")) return flag;
  const char* variable = std::getenv("TF_CONFIG");
  return variable == nullptr ? "" : variable;
}

}  // namespace

void AddTfConfigFlags(CommandLine& line, TfConfigFlags& flags) {
  line.Add(
      "tf_config", flags.tf_config,
      "TF_CONFIG as JSON, or @FILE to read it from a file; empty: the environment's TF_CONFIG.",
      HelpLevel::kBasic);
  line.Add("num_gpus", flags.num_gpus, "Ranks per host; 0: one for each task that trains.",
           HelpLevel::kBasic);
}

bool HasTfConfig(const CommandLine& line) {
  const char* variable = std::getenv("TF_CONFIG");
  return line.IsGiven("tf_config") || (variable != nullptr && !launch::IsBlank(variable));
}

launch::Cluster ReadCluster(const CommandLine& line, const TfConfigFlags& flags) {
  if (flags.num_gpus < 0 || flags.num_gpus > kMaxGpus)
    throw UsageError(fmt::format("[flags] --num_gpus: out of range: got {}, want 0 to {}",
                                 flags.num_gpus, kMaxGpus));
  return launch::ParseTfConfig(ReadTfConfig(line, flags.tf_config), flags.num_gpus);
}

}  // namespace carole::commands
