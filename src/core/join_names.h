// Lists in messages and help.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace carole {

// "a, b, c".
template <typename Texts>
std::string JoinTexts(const Texts& texts, std::string_view separator = ", ") {
  std::string joined;
  for (const std::string_view text : texts) {
    if (!joined.empty()) joined += separator;
    joined += text;
  }
  return joined;
}

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

// "a, b and 3 more": as many as `most` of them.
inline std::string JoinFirst(const std::vector<std::string>& names, size_t most) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), most); ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > most) text += " and " + std::to_string(names.size() - most) + " more";
  return text;
}

}  // namespace carole
