// Makes invisible bytes visible, for texts of users in messages.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace carole {

// Returns the text with control characters, invisible characters and bytes that are not UTF-8
// written as in C: "a\tb". Quotation marks and backslashes get a backslash.
inline std::string Escape(std::string_view text) {
  const std::string quoted = fmt::format("{:?}", text);
  return quoted.substr(1, quoted.size() - 2);
}

}  // namespace carole
