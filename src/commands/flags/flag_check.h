// The flags that all ranks have to share.
#pragma once

#include "collectives/communicator.h"
#include "src/commands/cli/command_line.h"

namespace carole::commands {

// Throws ConfigError that names ranks and values when ranks were given other flags or run another
// version. What only says where a rank finds its files, or how many threads it has, may differ.
// Collective.
void CheckFlagsMatch(const CommandLine& line, collectives::Communicator& communicator);

}  // namespace carole::commands
