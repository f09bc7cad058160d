#include "src/commands/cli/flag.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "src/core/text/join_names.h"
#include "src/core/text/lower_case.h"
#include "src/core/text/parse_number.h"

namespace carole::commands {
namespace {

// Returns the seconds of a number with a unit as text. Any other text stays.
std::string ToSeconds(const std::string& text) {
  constexpr std::pair<char, double> kUnits[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
  for (const auto& [unit, seconds] : kUnits) {
    if (!text.ends_with(unit)) continue;
    const std::string_view number = TrimBlanks(std::string_view(text).substr(0, text.size() - 1));
    if (const auto count = ParseNumber<double>(number)) return ShowValue(*count * seconds);
  }
  return text;
}

// Whether the text is a URL. TensorFlow opens gs://bucket/run; here that would become a folder of
// this name.
bool IsRemote(std::string_view text) {
  const size_t scheme = text.find("://");
  return scheme != std::string_view::npos && scheme > 0 &&
         std::isalpha(static_cast<unsigned char>(text[0])) != 0 &&
         std::ranges::all_of(text.substr(0, scheme), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '+' || c == '-' || c == '.';
         });
}

}  // namespace

std::optional<std::string> ReadValue(const std::string& text, bool& value) {
  constexpr std::string_view kTrue[] = {"true", "t", "yes", "y", "on", "1"};
  constexpr std::string_view kFalse[] = {"false", "f", "no", "n", "off", "0"};
  const std::string lower = LowerCase(text);
  value = std::ranges::count(kTrue, lower) > 0;
  if (value || std::ranges::count(kFalse, lower) > 0) return std::nullopt;
  return "";
}

std::optional<std::string> ReadValue(const std::string& text, double& value) {
  const bool has_plus = text.size() > 1 && text[0] == '+' && text[1] != '-';
  const auto number = ParseNumber<double>(std::string_view(text).substr(has_plus ? 1 : 0));
  constexpr double kMaxValue = std::numeric_limits<float>::max();  // devices compute in fp32
  if (!number) return "";
  if (!std::isfinite(*number)) return "a finite number";
  if (std::abs(*number) > kMaxValue) return fmt::format("a number of at most {:.2g}", kMaxValue);
  value = *number;
  return std::nullopt;
}

std::optional<std::string> ReadValue(const std::string& text, std::string& value) {
  if (IsRemote(text)) return "a path on this machine; mount remote storage first";
  value = text;
  return std::nullopt;
}

std::string ExpandHome(std::string& path) {
  if (!path.starts_with('~')) return "";
  const std::string first = path.substr(0, path.find('/'));
  if (first != "~") {
    return fmt::format(
        "got {}, want a path whose beginning is not {}; write ./{} for a folder of "
        "this name",
        path, first, path);
  }
  const char* const home = std::getenv("HOME");
  if (home == nullptr || *home == '\0')
    return fmt::format("got {}, want a path without ~, since HOME is not set", path);
  path.replace(0, 1, home);
  return "";
}

std::string ShowValue(bool value) { return value ? "true" : "false"; }

std::string ShowValue(double value) { return fmt::format("{}", value); }

Flag::Flag(const std::string& names, std::string help)
    : names_(SplitText(names, ',')), help_(std::move(help)) {}

Flag& Flag::Positive() {
  low_ = 0;
  above_low_ = true;
  return *this;
}

Flag& Flag::NonNegative() {
  low_ = 0;
  return *this;
}

Flag& Flag::Between(double low, double high) {
  low_ = low;
  high_ = high;
  return *this;
}

Flag& Flag::OneOf(std::vector<std::string> values) {
  choices_ = std::move(values);
  return *this;
}

Flag& Flag::Satisfies(Check check) {
  checks_.push_back(std::move(check));
  return *this;
}

Flag& Flag::HideDefault() {
  show_ = nullptr;
  return *this;
}

Flag& Flag::Required() {
  is_required_ = true;
  return *this;
}

Flag& Flag::AllowTimeUnits() {
  has_time_units_ = true;
  return *this;
}

Flag& Flag::SetType(Type type) {
  type_ = type;
  return *this;
}

Flag& Flag::SetGroup(const std::string& group) {
  group_ = group;
  return *this;
}

Flag& Flag::SetLevel(HelpLevel level) {
  level_ = level;
  return *this;
}

Flag& Flag::MakePositional() {
  is_positional_ = true;
  return *this;
}

bool Flag::is_in_range(double number) const {
  if (low_ && (above_low_ ? number <= *low_ : number < *low_)) return false;
  return !high_ || number <= *high_;
}

std::string Flag::AssignOne(const std::string& text) {
  const auto refuse = [&](const std::string& wanted) {
    return fmt::format("got {}, want {}", text.empty() ? "nothing" : text,
                       wanted.empty() ? Describe().wanted : wanted);
  };
  if (!choices_.empty() && std::ranges::count(choices_, text) == 0) return refuse("");
  if (read_) {
    if (const auto wanted = read_(has_time_units_ ? ToSeconds(text) : text)) return refuse(*wanted);
  }
  if (number_ && !is_in_range(number_())) return refuse("");
  for (const Check& check : checks_) {
    if (std::string error = check(text); !error.empty()) return error;
  }
  return "";
}

std::string Flag::Assign(const std::string& text) {
  if (!is_list()) return AssignOne(text);
  clear_();
  for (const std::string& entry : SplitText(text, ',')) {
    if (std::string error = AssignOne(entry); !error.empty()) return error;
  }
  return "";
}

std::string Flag::ExpandPaths(std::string& text) const {
  if (type_ == Type::kPath) {
    // A shell expands ~ in words of its own, so the rest are names that a pattern such as * found.
    std::error_code ignored;
    const bool is_found = is_positional_ && std::filesystem::exists(text, ignored);
    return is_found ? "" : ExpandHome(text);
  }
  if (type_ != Type::kPathList || text.find('~') == std::string::npos) return "";
  std::vector<std::string> paths = SplitText(text, ',');
  for (std::string& path : paths) {
    if (std::string error = ExpandHome(path); !error.empty()) return error;
  }
  text = JoinTexts(paths, ",");
  return "";
}

std::string Flag::Give(const std::string& text) {
  given_ = text;
  std::string error = ExpandPaths(*given_);
  if (error.empty()) error = Assign(*given_);
  if (is_bool() && error.empty() && read_) given_ = Show();  // yes and 1 are true
  return error;
}

std::string Flag::GiveEach(std::span<const std::string> texts) {
  given_ = JoinTexts(texts, " ");
  if (clear_) clear_();
  for (std::string text : texts) {
    std::string error = ExpandPaths(text);
    if (error.empty()) error = AssignOne(text);
    if (!error.empty()) return error;
  }
  return "";
}

Flag::Description Flag::Describe() const {
  Description described;
  switch (type_) {
    case Type::kSwitch:
    case Type::kBool:
      return {.type = "", .wanted = "true or false"};
    case Type::kInt:
      described = {"INT", "a whole number"};
      break;
    case Type::kFloat:
      described = {"FLOAT", "a number"};
      break;
    case Type::kText:
      described = {"TEXT", "text"};
      break;
    case Type::kPath:
    case Type::kPathList:
      described = {"PATH", "a path"};
      break;
  }
  if (!choices_.empty()) described.wanted = "one of " + JoinTexts(choices_);
  if (low_ && high_) {
    described.type += fmt::format("[{}..{}]", *low_, *high_);
    described.wanted = fmt::format("{} to {}", *low_, *high_);
  } else if (low_) {
    described.type += fmt::format("{}{}", above_low_ ? ">" : ">=", *low_);
    described.wanted += fmt::format("{}{}", above_low_ ? " above " : " of at least ", *low_);
  }
  if (is_list() && !is_positional_) described.type += ",...";
  return described;
}

std::vector<std::string> SplitText(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    const std::string_view part = TrimBlanks(text.substr(0, end));
    if (!part.empty()) parts.emplace_back(part);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::string_view TrimBlanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

}  // namespace carole::commands
