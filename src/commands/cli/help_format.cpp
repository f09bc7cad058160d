#include "src/commands/cli/help_format.h"

#include <algorithm>
#include <sstream>
#include <vector>

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

// CLI11 joins the type and the descriptions of validators with colons: "INT:INT in [0 - 9]",
// "FLOAT:POSITIVE", "TEXT:{a,b}".
std::string TypeText(const CLI::Option& option) {
  const std::string name = option.get_type_name();
  std::string type = name.substr(0, name.find(':'));
  if (type == "UINT") type = "INT";
  if (const size_t range = name.find(" in ["); range != std::string::npos) {
    std::string bounds = name.substr(range + 4, name.find(']', range) + 1 - (range + 4));
    const size_t dash = bounds.find(" - ");
    if (dash != std::string::npos) bounds.replace(dash, 3, "..");
    type += bounds;
  }
  if (name.find(":NONNEGATIVE") != std::string::npos) type += ">=0";
  if (name.find(":POSITIVE") != std::string::npos) type += ">0";
  return IsListOption(option) ? type + ",..." : type;
}

}  // namespace

bool IsListOption(const CLI::Option& option) { return option.get_delimiter() != '\0'; }

bool IsBoolOption(const CLI::Option& option) {
  return option.get_type_size() == 0 || option.get_expected_max() == 0;
}

std::string OptionSpec(const CLI::Option& option) {
  const std::vector<std::string>& names = option.get_lnames();
  if (names.empty()) return option.get_name() + (option.get_items_expected_max() > 1 ? "..." : "");
  if (names.size() == 2 && names[1] == "no" + names[0]) return "--[no]" + names[0];
  std::string spec;
  for (const std::string& name : names) spec += (spec.empty() ? "--" : ",--") + name;
  return IsBoolOption(option) ? spec : spec + " " + TypeText(option);
}

std::string AllowedValues(const CLI::Option& option) {
  const std::string name = option.get_type_name();
  const size_t begin = name.find('{');
  if (begin == std::string::npos) return "";
  std::string values = name.substr(begin + 1, name.find('}', begin) - (begin + 1));
  for (size_t comma = values.find(','); comma != std::string::npos;
       comma = values.find(',', comma + 2))
    values.replace(comma, 1, ", ");
  return " One of: " + values + ".";
}

std::string DefaultText(const CLI::Option& option) {
  std::string value = option.get_default_str();
  if (IsListOption(option) && value.starts_with('[')) value = value.substr(1, value.size() - 2);
  return value.empty() || value == "{}" ? "" : " [default: " + value + "]";
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
