#include "src/commands/same_flags.h"

#include <map>
#include <set>

#include "collectives/same_facts.h"
#include "src/commands/version.h"

namespace carole::commands {
namespace {

const std::set<std::string> kOwnOfRank = {"dataset_dir", "train_dir", "log_dir",
                                          "work_dir",    "threads",   "num_preprocessing_threads"};

}  // namespace

void RequireSameFlags(const CommandLine& line, collectives::Communicator& communicator) {
  std::map<std::string, std::string> facts = {{"version", Build()}};
  for (const auto& [name, value] : line.Given()) {
    if (kOwnOfRank.count(name) == 0) facts["--" + name] = value;
  }
  collectives::RequireSameFacts(communicator, facts);
}

}  // namespace carole::commands
