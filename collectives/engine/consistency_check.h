// Checks that all ranks call the same operation.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "collectives/transport/operation.h"

namespace carole::collectives {

// Throws CommError unless the headers in `range` are equal. The error names a rank with the
// smallest and one with the largest header, by `names`, and every field that differs.
void CheckHeadersMatch(const HeaderRange& range, std::span<const std::string> names);

}  // namespace carole::collectives
