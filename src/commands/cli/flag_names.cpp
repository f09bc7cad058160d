#include "src/commands/cli/flag_names.h"

#include "src/core/error.h"

namespace carole::commands {

std::string WithFlags(std::string_view text) {
  constexpr std::string_view kBegin = kOptionMark;
  constexpr std::string_view kNameCharacters = "abcdefghijklmnopqrstuvwxyz0123456789_";
  std::string result;
  while (true) {
    const size_t begin = text.find(kBegin);
    result += text.substr(0, begin);
    if (begin == std::string_view::npos) return result;
    text.remove_prefix(begin + kBegin.size());
    const size_t end = text.find_first_not_of(kNameCharacters);
    if (end == 0 || end == std::string_view::npos || text[end] != ')') {
      result += kBegin;
      continue;
    }
    result += "--";
    result += text.substr(0, end);
    text.remove_prefix(end + 1);
  }
}

}  // namespace carole::commands
