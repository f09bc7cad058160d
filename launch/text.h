// Words for messages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace carole::launch {

// `text` in quotes: ASCII, control characters escaped, cut when long.
std::string Quote(std::string_view text);

// "a, b, c".
std::string Join(const std::vector<std::string>& words, std::string_view separator = ", ");

}  // namespace carole::launch
