// Lists in messages and help.
#pragma once

#include <cstddef>
#include <span>
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
  std::vector<std::string_view> names;
  for (const auto& row : rows) names.push_back(row.name);
  return JoinTexts(names);
}

// "a, b and 3 more": as many as `most` of them.
inline std::string JoinFirst(const std::vector<std::string>& names, size_t most) {
  if (names.size() <= most) return JoinTexts(names);
  return JoinTexts(std::span(names).first(most)) + " and " + std::to_string(names.size() - most) +
         " more";
}

}  // namespace carole
