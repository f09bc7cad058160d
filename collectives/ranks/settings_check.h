// Checks that settings are the same on all ranks: program, flags, net, seed, data.
#pragma once

#include <map>
#include <string>

#include "collectives/communicator.h"

namespace carole::collectives {

// Compares the settings of all ranks, given as pairs of name and value. A name that a rank lacks
// counts as a difference. Collective. Throws ConfigError if a rank differs from rank 0. The error
// names the first such rank, every setting that differs, and both values. All ranks throw the same
// text.
void CheckSettingsMatch(Communicator& communicator,
                        const std::map<std::string, std::string>& settings);

}  // namespace carole::collectives
