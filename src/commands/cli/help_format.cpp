#include "src/commands/cli/help_format.h"

#include <algorithm>
#include <sstream>
#include <vector>

#include "src/core/text/join_names.h"

namespace carole::commands {
namespace {

constexpr size_t kWidth = 100;
constexpr size_t kTextColumn = 36;

// The words of a text. A default in brackets is one word, so that it stays on one line.
std::vector<std::string> WordsOf(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; stream >> word;) {
    if (!words.empty() && words.back() == "[default:") {
      words.back() += " " + word;
    } else {
      words.push_back(word);
    }
  }
  return words;
}

}  // namespace

std::string FlagSpec(const Flag& flag) {
  if (flag.is_positional()) return flag.name() + (flag.is_list() ? "..." : "");
  if (flag.is_switch()) return "--" + flag.name();
  if (flag.is_bool()) return "--[no]" + flag.name();
  return "--" + JoinTexts(flag.names(), ",--") + " " + flag.Describe().type;
}

std::string AllowedValues(const Flag& flag) {
  return flag.choices().empty() ? "" : " One of: " + JoinTexts(flag.choices()) + ".";
}

std::string DefaultText(const Flag& flag) {
  const std::string value = flag.Show();
  return value.empty() ? "" : " [default: " + value + "]";
}

std::string WrapText(const std::string& text, size_t column, size_t indent) {
  std::string lines;
  bool is_line_start = true;
  for (const std::string& word : WordsOf(text)) {
    if (!is_line_start && column + 1 + word.size() > kWidth) {
      lines += "\n" + std::string(indent, ' ');
      column = indent;
      is_line_start = true;
    }
    if (!is_line_start) lines += " ";
    column += word.size() + (is_line_start ? 0 : 1);
    lines += word;
    is_line_start = false;
  }
  return lines;
}

std::string HelpEntry(const std::string& name, const std::string& text) {
  std::string line = "  " + name + "  ";
  line.resize(std::max(line.size(), kTextColumn), ' ');
  return line + WrapText(text, line.size(), kTextColumn) + "\n";
}

}  // namespace carole::commands
