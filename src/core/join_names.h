// What a table of this program offers, for messages and help.
#pragma once

#include <string>

namespace carole {

// "a, b, c": the names of rows that have a `name`.
template <typename Rows>
std::string JoinNames(const Rows& rows) {
  std::string names;
  for (const auto& row : rows) {
    if (!names.empty()) names += ", ";
    names += row.name;
  }
  return names;
}

}  // namespace carole
