// Quotes texts of users in commands that messages show.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

namespace carole {

// Returns the text as one word for a shell: it is plain if no character means anything there, else
// it stands in single quotes.
inline std::string QuoteForShell(std::string_view text) {
  const bool is_plain = !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("_-./=,:@%+").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (is_plain) return std::string(text);
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace carole
