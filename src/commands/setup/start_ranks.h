// Starts the ranks that a flag asks for, so that a machine with several of them needs no mpirun on
// the command line.
#pragma once

#include "src/commands/cli/commands.h"

namespace carole::commands {

// Compares `ranks` with the number of ranks that a launcher (mpirun, srun) started, if one did. If
// none did, replaces this process by an mpirun that starts `ranks` processes of `carole train
// ARGUMENTS` on this machine. Returns if there is nothing to start: `ranks` is 0 or 1, or a
// launcher started them. Throws UsageError if the numbers differ; ConfigError if mpirun is missing
// or this process is one of several that cannot be ranks.
void StartRanks(int ranks, const Arguments& arguments);

}  // namespace carole::commands
