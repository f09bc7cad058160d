// Words for messages.
#pragma once

#include <string>
#include <string_view>

namespace carole::launch {

// `text` in quotes: ASCII, control characters escaped, cut when long.
std::string Quote(std::string_view text);

// The first part of `text` that the regular expression fits; nothing if there is none.
std::string FirstMatch(const std::string& text, const char* pattern);
// "4.1.4" within a text.
inline constexpr char kVersionPattern[] = "[0-9]+\\.[0-9]+\\.[0-9]+";

}  // namespace carole::launch
