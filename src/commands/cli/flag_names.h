// Replaces the names of options in texts by flags. Libraries mark the names with Option() of
// src/core/error.h.
#pragma once

#include <string>
#include <string_view>

namespace carole::commands {

// Returns the text with "--batch_size" for each Option("batch_size").
std::string WithFlags(std::string_view text);

}  // namespace carole::commands
