// Skips the byte order mark that editors of Windows write before UTF-8 text.
#pragma once

#include <string_view>

namespace carole {

inline std::string_view WithoutByteOrderMark(std::string_view text) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  return text.starts_with(kMark) ? text.substr(kMark.size()) : text;
}

}  // namespace carole
