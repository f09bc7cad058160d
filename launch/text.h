// Words for messages.
#pragma once

#include <string>
#include <string_view>

namespace carole::launch {

// `text` in quotes: ASCII, control characters escaped, cut when long.
std::string Quote(std::string_view text);

}  // namespace carole::launch
