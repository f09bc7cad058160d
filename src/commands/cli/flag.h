// One flag of a command line: its names and help, which values it allows, and the variable that
// holds its value. Callers get a flag from CommandLine::Add...() and chain what it allows:
//
//   line.Add("threads", flags.threads, "Threads per rank.").Between(0, 4096);
//
// What a flag allows is described once, by Describe(), for help and for errors.
#pragma once

#include <charconv>
#include <concepts>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace carole::commands {

// Which help lists a flag: --help lists the basic flags, --helpfull lists all.
enum class HelpLevel { kBasic, kAdvanced };

// Functions that read a text into a variable. They return nullopt if the text is a value of the
// type, else what it should be, or "" if the description of the flag says that.
std::optional<std::string> ReadValue(const std::string& text, bool& value);
std::optional<std::string> ReadValue(const std::string& text, double& value);
std::optional<std::string> ReadValue(const std::string& text, std::string& value);
template <std::integral T>
std::optional<std::string> ReadValue(const std::string& text, T& value) {
  const size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  const char* const last = text.data() + text.size();
  const auto read = std::from_chars(text.data() + (text.starts_with('+') ? 1 : 0), last, value);
  if (read.ec == std::errc::result_out_of_range) {
    using Limits = std::numeric_limits<T>;
    return text[0] == '-' ? "a whole number of at least " + std::to_string(Limits::min())
                          : "a whole number of at most " + std::to_string(Limits::max());
  }
  if (read.ec != std::errc() || read.ptr != last) return "";
  // Other programs read 010 as 8.
  if (text.size() > sign + 1 && text[sign] == '0') return "a whole number without a 0 in front";
  return std::nullopt;
}

std::string ShowValue(bool value);
std::string ShowValue(double value);
inline std::string ShowValue(const std::string& value) { return value; }
template <std::integral T>
std::string ShowValue(T value) {
  return std::to_string(value);
}

// Replaces a ~ at the beginning of a path, alone or in front of a slash, by the home folder, as
// shells do: they leave it in --flag=~/run. Returns "", or an error "got X, want Y" if HOME is not
// set or the path begins with the home folder of a user, ~user.
std::string ExpandHome(std::string& path);

class Flag {
 public:
  // What --help and errors say about the type. A switch is a bool that takes no value. kPathList is
  // a text with paths between commas.
  enum class Type { kSwitch, kBool, kInt, kFloat, kText, kPath, kPathList };
  // Returns "" for an allowed text, else what is wrong with it.
  using Check = std::function<std::string(const std::string& text)>;

  // `names`: the flag and its aliases, "dataset_dir,data_dir".
  Flag(const std::string& names, std::string help);

  // These narrow what the flag allows, and return it. They apply to each entry of a list.
  Flag& Positive();
  Flag& NonNegative();
  Flag& Between(double low, double high);
  Flag& OneOf(std::vector<std::string> values);
  Flag& Satisfies(Check check);
  // A number of seconds may have a unit: s, m, h or d.
  Flag& AllowTimeUnits();
  // Help shows no default.
  Flag& HideDefault();
  // The command cannot run without it.
  Flag& Required();

  // Sets the variable. Its present content is the default.
  template <typename T>
  Flag& Store(T& value) {
    type_ = TypeOf(value);
    read_ = [&value](const std::string& text) { return ReadValue(text, value); };
    show_ = [&value] { return ShowValue(value); };
    if constexpr (std::is_arithmetic_v<T>)
      number_ = [&value] { return static_cast<double>(value); };
    return *this;
  }
  template <typename T>
  Flag& Store(std::vector<T>& values) {
    if constexpr (std::is_arithmetic_v<T>)
      number_ = [&values] { return static_cast<double>(values.back()); };
    type_ = TypeOf(T());
    clear_ = [&values] { values.clear(); };
    read_ = [&values](const std::string& text) { return ReadValue(text, values.emplace_back()); };
    show_ = [&values] {
      std::string text;
      for (const T& value : values) text += (text.empty() ? "" : ",") + ShowValue(value);
      return text;
    };
    return *this;
  }
  // The same for a value that is chosen by its name.
  template <typename T>
  Flag& StoreChoice(T& value, std::vector<std::pair<std::string, T>> choices) {
    for (const auto& [name, choice] : choices) choices_.push_back(name);
    read_ = [&value, choices](const std::string& text) -> std::optional<std::string> {
      for (const auto& [name, choice] : choices) {
        if (name != text) continue;
        value = choice;
        return std::nullopt;
      }
      return "";
    };
    show_ = [&value, choices] {
      for (const auto& [name, choice] : choices) {
        if (choice == value) return name;
      }
      return std::string();
    };
    return *this;
  }

  Flag& SetType(Type type);
  Flag& SetGroup(const std::string& group);
  Flag& SetLevel(HelpLevel level);
  Flag& MakePositional();

  // Stores the value. Returns "" or an error: "got X, want Y".
  std::string Assign(const std::string& text);
  // The same for a value that was given, on the command line or in a file.
  std::string Give(const std::string& text);
  // The same for positional arguments, which are not split at commas.
  std::string GiveEach(std::span<const std::string> texts);

  const std::string& name() const { return names_.front(); }
  const std::vector<std::string>& names() const { return names_; }
  const std::string& help() const { return help_; }
  const std::string& group() const { return group_; }
  HelpLevel level() const { return level_; }
  bool is_positional() const { return is_positional_; }
  bool is_required() const { return is_required_; }
  bool is_list() const { return clear_ != nullptr; }
  bool is_bool() const { return type_ == Type::kBool || is_switch(); }
  bool is_switch() const { return type_ == Type::kSwitch; }
  bool is_given() const { return given_.has_value(); }
  const std::string& given() const { return *given_; }
  const std::vector<std::string>& choices() const { return choices_; }
  // The present value, or "" if there is none.
  std::string Show() const { return show_ ? show_() : ""; }

  // Describes what the flag allows. `type`: for help, after the name, such as "INT[0..9]".
  // `wanted`: for errors, such as "0 to 9".
  struct Description {
    std::string type;
    std::string wanted;
  };
  Description Describe() const;

 private:
  static Type TypeOf(bool) { return Type::kBool; }
  static Type TypeOf(double) { return Type::kFloat; }
  static Type TypeOf(const std::string&) { return Type::kText; }
  template <std::integral T>
  static Type TypeOf(T) {
    return Type::kInt;
  }
  bool is_in_range(double number) const;
  // Replaces ~ in a path, or in each path of a list. Does nothing to other types. Returns "" or an
  // error.
  std::string ExpandPaths(std::string& text) const;
  std::string AssignOne(const std::string& text);

  std::vector<std::string> names_;
  std::string help_;
  std::string group_;
  HelpLevel level_ = HelpLevel::kAdvanced;
  Type type_ = Type::kText;
  bool is_positional_ = false;
  bool is_required_ = false;
  // The allowed range of a number. `low_` itself is allowed unless `above_low_` is set.
  std::optional<double> low_, high_;
  bool above_low_ = false;
  bool has_time_units_ = false;
  std::vector<std::string> choices_;
  std::vector<Check> checks_;
  std::function<std::optional<std::string>(const std::string& text)> read_;
  std::function<std::string()> show_;
  std::function<double()> number_;  // the value that was read last
  std::function<void()> clear_;     // of a list
  std::optional<std::string> given_;
};

// Returns the parts of a text between separators, without blanks around them and without empty
// parts.
std::vector<std::string> SplitText(std::string_view text, char separator);
// Returns the text without blanks around it.
std::string_view TrimBlanks(std::string_view text);

}  // namespace carole::commands
