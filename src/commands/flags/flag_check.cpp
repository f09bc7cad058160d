#include "src/commands/flags/flag_check.h"

#include <map>
#include <set>

#include "collectives/ranks/settings_check.h"
#include "src/commands/cli/version.h"

namespace carole::commands {
namespace {

// Flags that may differ between ranks.
const std::set<std::string> kRankLocalFlags = {
    "dataset_dir", "train_dir", "log_dir", "work_dir", "threads", "num_preprocessing_threads"};

}  // namespace

void CheckFlagsMatch(const CommandLine& line, collectives::Communicator& communicator) {
  std::map<std::string, std::string> facts = {{"version", Build()}};
  for (const auto& [name, value] : line.given_flags()) {
    if (kRankLocalFlags.count(name) == 0) facts["--" + name] = value;
  }
  collectives::CheckSettingsMatch(communicator, facts);
}

}  // namespace carole::commands
