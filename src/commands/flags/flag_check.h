// The consistency check of flags across ranks.
#pragma once

#include "collectives/communicator.h"
#include "src/commands/cli/command_line.h"

namespace carole::commands {

// Checks that all ranks run the same version and were given the same flags. Flags that say where a
// rank finds its files, or how many threads it has, may differ. Collective. Throws ConfigError that
// names the ranks and values that differ.
void CheckFlagsMatch(const CommandLine& line, collectives::Communicator& communicator);

}  // namespace carole::commands
