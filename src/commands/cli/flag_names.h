// Replaces the names of options in texts by flags. Libraries mark the names with Option() of
// src/core/error.h.
#pragma once

#include <string>
#include <string_view>

namespace carole::commands {

// Returns the text with "--batch_size" for each "$(batch_size)". Only lower case letters, digits
// and underscores are a name, so a shell's $(...) in a quoted path stays.
std::string WithFlags(std::string_view text);

}  // namespace carole::commands
