// The command line of one command of carole: declares its flags, parses them, and prints its help.
//
// Flags behave as those of TF-Slim's programs (absl flags), so that existing command lines work:
//   - `--flag value` and `--flag=value` are the same, also with one dash;
//   - dashes and underscores in names are the same;
//   - a bool takes `--flag`, `--noflag` and `--flag=true|false`;
//   - the last of several values of one flag wins;
//   - `--config FILE` reads the same names from a TOML file; the command line wins over the file;
//   - `--flagfile FILE` is expanded before this class sees the arguments (flag_files.h).
//
// A flag's help is written where the flag is declared: one sentence with the unit of the value,
// ending with a period, and a HelpLevel. Type, allowed values and default are added by PrintHelp().
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <cctype>
#include <charconv>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

namespace carole::commands {

// Values of flags by flag name. The values of a list are joined with commas.
using GivenFlags = std::map<std::string, std::string>;
// Returns "--name=value --name=value".
std::string JoinFlags(const GivenFlags& given);

// Validates a file of flags: returns "" if the file can be read or is missing, else an error text.
// Devices, pipes and files over 1 MiB are refused, because CLI11 reads the whole file.
std::string ValidateFlagFile(const std::string& path);

// "One of: a, b." for the help of a flag whose values are not checked by CLI::IsMember, which adds
// this text itself. `names`: "a, b" or "a or b".
std::string OneOf(std::string names);

// Which help lists a flag: --help lists the basic flags, --helpfull lists all.
enum class HelpLevel { kBasic, kAdvanced };

class CommandLine {
 public:
  // `name`: the whole command, such as "carole train". `summary`: what the command does, in full
  // sentences. `examples`: command lines that --help shows at the end.
  CommandLine(const std::string& name, const std::string& summary,
              std::vector<std::string> examples);

  // Replaces the usage line, "carole train [FLAGS]".
  void SetUsage(const std::string& usage) { usage_ = usage; }

  // Help lists flags that are added from now on under this heading. A heading can be used again.
  void Group(const std::string& heading) { group_ = heading; }

  // Adds a flag that is stored in `value`, which must outlive this object. `names`: the flag and
  // its aliases, "dataset_dir,data_dir". The present content of `value` is the default. Returns the
  // option, so that callers can chain checks: ->check(CLI::Range(0, 9)).
  template <typename T>
  CLI::Option* Add(const std::string& names, T& value, const std::string& help,
                   HelpLevel level = HelpLevel::kAdvanced) {
    return Finish<T>(app_.add_option(WithDashes(names), value, help), level);
  }
  template <typename T>
  CLI::Option* AddPositive(const std::string& names, T& value, const std::string& help,
                           HelpLevel level = HelpLevel::kAdvanced) {
    return Add(names, value, help, level)->check(CLI::PositiveNumber);
  }
  template <typename T>
  CLI::Option* AddNonNegative(const std::string& names, T& value, const std::string& help,
                              HelpLevel level = HelpLevel::kAdvanced) {
    return Add(names, value, help, level)->check(CLI::NonNegativeNumber);
  }
  // Adds a flag whose value is a file or a folder.
  CLI::Option* AddPath(const std::string& names, std::string& value, const std::string& help,
                       HelpLevel level = HelpLevel::kAdvanced) {
    return Add(names, value, help, level)->type_name("PATH");
  }
  // Adds a comma list. Empty entries do not count: `--flag=` is an empty list.
  template <typename T>
  CLI::Option* AddList(const std::string& names, std::vector<T>& values, const std::string& help,
                       HelpLevel level = HelpLevel::kAdvanced) {
    using List = std::vector<T>;
    const auto read = [&values](CLI::results_t entries) {
      std::erase(entries, "");
      values.clear();
      return entries.empty() || CLI::detail::lexical_conversion<List, List>(entries, values);
    };
    const auto show = [&values] { return CLI::detail::to_string(values); };
    return Finish<T>(app_.add_option(WithDashes(names), read, help, false, show), level)
        ->type_name(CLI::detail::type_name<T>())
        ->expected(CLI::detail::expected_max_vector_size)
        ->delimiter(',')
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->trigger_on_parse();  // drops what was given before: the last of several wins
  }
  CLI::Option* AddBool(const std::string& name, bool& value, const std::string& help,
                       HelpLevel level = HelpLevel::kAdvanced);

  // Adds an argument without a name.
  template <typename T>
  CLI::Option* AddPositional(const std::string& name, T& value, const std::string& help) {
    return app_.add_option(name, value, help)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }

  // Help marks this flag "(required)" as long as it has no default. Only for flags that the command
  // checks itself, after a recipe's defaults are set; CLI11's required() checks before that.
  void MarkRequired(const std::string& name) { required_.insert(name); }

  // Adds a flag of another program that cannot mean anything here. It is accepted, and LogIgnored()
  // logs `instead`: what happens instead. `describe_wanted` checks the value; null: any value is
  // fine. It returns "" for an allowed value, else a description of the allowed values.
  using DescribeWanted = std::string (*)(const std::string& value);
  void AddIgnored(const std::string& name, const std::string& instead,
                  DescribeWanted describe_wanted = nullptr);
  // The same for a bool.
  void AddIgnoredBool(const std::string& name, const std::string& instead,
                      DescribeWanted describe_wanted = nullptr);
  // Logs a line for each ignored flag that was given.
  void LogIgnored() const;

  // Adds another program's name for a flag that was already added, with a translation of its value:
  // --name=V is read as --flag=value, where {} in `value` stands for V. `allowed`: a comma list of
  // the allowed V; empty: any.
  void AddValueAlias(const std::string& name, const std::string& flag, const std::string& value,
                     const std::string& allowed = "");

  // Changes the default of a flag. Has no effect if the flag was given or does not exist. Call it
  // after Parse() or in the hook of BeforeHelp().
  void SetDefault(const std::string& name, const std::string& value);
  // Sets a function that is called before help is printed.
  void BeforeHelp(std::function<void()> hook) { before_help_ = std::move(hook); }
  // Reads these flags as Python's argparse does. The beginning of a name stands for the name if it
  // fits no other of them, and a bool may have its value in the next word.
  // `names` are separated by blanks; names of flags that do not exist are skipped.
  void ParseLikeArgparse(std::string_view names);

  bool HasFlag(const std::string& name) const;
  bool IsGiven(const std::string& name) const;

  // Returns every flag that was given on the command line or in a file, under its first name even
  // if an alias was written.
  GivenFlags given_flags() const;

  // Parses the arguments into the values of the flags. Returns false if help was asked for and
  // printed. Throws UsageError; for an unknown flag its text has the nearest name.
  bool Parse(const std::vector<std::string>& arguments);

 private:
  static std::string WithDashes(const std::string& names);
  CLI::Option* AddUnread(const std::string& name, const std::string& help);
  void FinishIgnored(CLI::Option* option, const std::string& instead,
                     DescribeWanted describe_wanted);
  template <typename T>
  CLI::Option* Finish(CLI::Option* option, HelpLevel level) {
    if constexpr (std::is_floating_point_v<T>) option->check(ValidateFinite);
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
      option->check(ValidateInteger<T>);
    if constexpr (std::is_same_v<T, std::string>) option->check(ValidateLocalPath);
    if (level == HelpLevel::kBasic) basic_.insert(option);
    return option->group(group_)->capture_default_str();
  }
  // Validators return "" for a good value, else an error text.
  //
  // CLI11's ranges let NaN through, and CLI11 reads an empty text as 0.
  static std::string ValidateFinite(const std::string& number);
  // TensorFlow opens gs://bucket/run; here that would become a folder of this name.
  static std::string ValidateLocalPath(const std::string& text);
  // CLI11 reads 010 as 8, and a number that is too large as the largest one.
  template <typename T>
  static std::string ValidateInteger(const std::string& text) {
    if (text.empty()) return "got nothing, want a whole number";
    const size_t sign = text[0] == '-' || text[0] == '+' ? 1 : 0;
    if (text.size() > sign + 1 && text[sign] == '0' && std::isdigit(text[sign + 1]) != 0)
      return "got " + text + ", want a whole number without a 0 in front";
    T number{};
    const char* const digits = text.data() + (text[0] == '+' ? 1 : 0);
    const auto read = std::from_chars(digits, text.data() + text.size(), number);
    if (read.ec != std::errc::result_out_of_range) return "";
    return "got " + text + ", want a " + (text[0] == '-' ? "larger" : "smaller") + " number";
  }
  // Throws UsageError if there is no such flag.
  void CheckKnown(const std::string& flag) const;
  // Returns the one argparse-like flag that begins with `flag`, or `flag` itself if it is a flag or
  // fits none. Throws UsageError that lists them if it fits several.
  std::string ExpandPrefix(const std::string& flag) const;
  // Whether `word` is the value of the bool `flag` that precedes it.
  bool IsValueOfBool(const std::string& flag, const std::string& word) const;
  std::vector<std::string> Normalize(const std::vector<std::string>& arguments) const;

  bool IsBasic(const CLI::Option& option) const;
  bool IsRequired(const CLI::Option& option) const;
  std::string FlagHelp(const CLI::Option& option) const;
  std::string UsageText() const;
  void PrintHelp(bool full) const;

  struct Ignored {
    CLI::Option* option;
    std::string instead;
  };
  struct ValueAlias {
    std::string name, flag, value, allowed;
    // "50" -> "imagenet_resnet_v2_50".
    std::string Insert(const std::string& given) const;
    // The same. Throws UsageError for a value that is not allowed.
    std::string Translate(const std::string& given) const;
  };
  const ValueAlias* FindValueAlias(const std::string& name) const;

  CLI::App app_;
  std::string usage_;
  std::vector<std::string> examples_;
  std::string group_;
  std::set<const CLI::Option*> basic_;
  std::set<std::string> required_;
  std::vector<Ignored> ignored_;
  std::vector<ValueAlias> value_aliases_;
  std::vector<std::string> argparse_flags_;
  std::function<void()> before_help_;
};

}  // namespace carole::commands
