// Text for messages: quotes untrusted text and finds version numbers.
#pragma once

#include <string>
#include <string_view>

namespace carole::launch {

// Returns `text` in double quotes, as ASCII with escaped control characters, truncated if it is
// long.
std::string Quote(std::string_view text);

// Returns the first part of `text` that matches the regular expression, or "" if none does.
std::string FirstMatch(const std::string& text, const char* pattern);
// Pattern of a version number such as 4.1.4.
inline constexpr char kVersionPattern[] = "[0-9]+\\.[0-9]+\\.[0-9]+";

}  // namespace carole::launch
