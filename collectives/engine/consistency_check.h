// What ranks agree on before data is believed.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "collectives/transport/operation.h"

namespace carole::collectives {

// Throws CommError that names both ranks, by `names`, and every field that differs.
void CheckHeadersMatch(const HeaderRange& verdict, std::span<const std::string> names);

}  // namespace carole::collectives
