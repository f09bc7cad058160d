// Joins names to one text, for lists in messages and help.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace carole {

// Returns "a, b, c".
template <typename Texts>
std::string JoinTexts(const Texts& texts, std::string_view separator = ", ") {
  std::string joined;
  for (const std::string_view text : texts) {
    if (!joined.empty()) joined += separator;
    joined += text;
  }
  return joined;
}

// The same for the rows of a table, by their member `name`.
template <typename Rows>
std::string JoinNames(const Rows& rows) {
  std::vector<std::string_view> names;
  for (const auto& row : rows) names.push_back(row.name);
  return JoinTexts(names);
}

// Returns "a, b and 3 more": at most max_names of the names, and the number of the others.
inline std::string JoinFirst(const std::vector<std::string>& names, size_t max_names) {
  if (names.size() <= max_names) return JoinTexts(names);
  return JoinTexts(std::span(names).first(max_names)) + " and " +
         std::to_string(names.size() - max_names) + " more";
}

}  // namespace carole
