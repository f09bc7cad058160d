// What has to be the same on all ranks before they start: program, flags, net, seed, data.
#pragma once

#include <map>
#include <string>

#include "collectives/communicator.h"

namespace carole::collectives {

// Compares the values by name; a name that a rank lacks counts as a difference. Collective. Throws
// ConfigError that names every fact which differs, both values and both ranks: the first rank that
// differs, and rank 0. The same text on every rank.
void CheckSettingsMatch(Communicator& communicator,
                        const std::map<std::string, std::string>& facts);

}  // namespace carole::collectives
