// Flags as TF-Slim's users write them: `--flag value` and `--flag=value`, also with one dash;
// dashes and underscores mean the same; a bool also takes --noflag and --flag=true|false; the last
// of several wins; `--config FILE` (TOML) holds the same names, and the command line wins over it
// (--flagfile: flag_files.h); --help leaves out what the other programs' flags mean here,
// --helpfull lists it too.
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
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

namespace carole::commands {

// Values of flags by their names. A list's has commas.
using GivenFlags = std::map<std::string, std::string>;
// "--name=value --name=value".
std::string JoinFlags(const GivenFlags& given);

// Why a file cannot be one of flags; "" if it can, or is missing. CLI11 reads it whole: no device
// or pipe, which may never end.
std::string RefuseFlagFile(const std::string& path);

class CommandLine {
 public:
  // `name` is the whole command, "carole train".
  CommandLine(const std::string& name, const std::string& description);

  // Flags added from now on are listed under this heading of the help.
  void Group(const std::string& heading) { group_ = heading; }

  // `names` is a flag and its aliases, "dataset_dir,data_dir". The value that `value` has is the
  // default.
  template <typename T>
  CLI::Option* Add(const std::string& names, T& value, const std::string& help) {
    return Finish<T>(app_.add_option(WithDashes(names), value, help));
  }
  template <typename T>
  CLI::Option* AddPositive(const std::string& names, T& value, const std::string& help) {
    return Add(names, value, help)->check(CLI::PositiveNumber);
  }
  template <typename T>
  CLI::Option* AddNonNegative(const std::string& names, T& value, const std::string& help) {
    return Add(names, value, help)->check(CLI::NonNegativeNumber);
  }
  // A comma list. Empty entries do not count: `--flag=` is an empty list.
  template <typename T>
  CLI::Option* AddList(const std::string& names, std::vector<T>& values, const std::string& help) {
    using List = std::vector<T>;
    const auto read = [&values](CLI::results_t entries) {
      std::erase(entries, "");
      values.clear();
      return entries.empty() || CLI::detail::lexical_conversion<List, List>(entries, values);
    };
    const auto show = [&values] { return CLI::detail::to_string(values); };
    return Finish<T>(app_.add_option(WithDashes(names), read, help, false, show))
        ->type_name(CLI::detail::type_name<T>())
        ->expected(CLI::detail::expected_max_vector_size)
        ->delimiter(',')
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->trigger_on_parse();  // drops what was given before: the last of several wins
  }
  CLI::Option* AddBool(const std::string& name, bool& value, const std::string& help);

  // An argument without a name.
  template <typename T>
  CLI::Option* AddPositional(const std::string& name, T& value, const std::string& help) {
    return app_.add_option(name, value, help)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }

  // A flag that cannot mean anything here: accepted with the values that `refuse` has nothing
  // against (it says what is wanted; null: any), and LogIgnored() says what happens instead.
  using Refuse = std::string (*)(const std::string& value);
  void AddIgnored(const std::string& name, const std::string& instead, Refuse refuse = nullptr);
  // The same for a bool.
  void AddIgnoredBool(const std::string& name, const std::string& instead, Refuse refuse = nullptr);
  void LogIgnored() const;

  // Another program's name for a flag that has been added: --name=V is read as --flag=value, where
  // value holds {} for V. `allowed`: a comma list of V; empty: any.
  void AddSpelling(const std::string& name, const std::string& flag, const std::string& value,
                   const std::string& allowed = "");

  // Gives a flag another default; nothing when it was given, or there is no such flag. After
  // Parse(), or within before_help.
  void SetDefault(const std::string& name, const std::string& value);
  // Called before a help is printed.
  void BeforeHelp(std::function<void()> hook) { before_help_ = std::move(hook); }
  // From now on these flags (names with blanks between them; those that there are not, do not
  // count) are read as Python's argparse does: the beginning of a name stands for it where it fits
  // no other of them, and a bool may have its value in the next word.
  void ReadAsArgparse(std::string_view names);

  bool Has(const std::string& name) const;
  bool Given(const std::string& name) const;

  // Every flag that was given, in a file too, by its own name whatever alias was written.
  GivenFlags Given() const;

  // False when help was asked for and printed. Throws UsageError; an unknown flag's nearest name is
  // in its text.
  bool Parse(const std::vector<std::string>& arguments);

 private:
  static std::string WithDashes(const std::string& names);
  CLI::Option* AddUnread(const std::string& name, const std::string& help);
  void FinishIgnored(CLI::Option* option, const std::string& instead, Refuse refuse);
  template <typename T>
  CLI::Option* Finish(CLI::Option* option) {
    if constexpr (std::is_floating_point_v<T>) option->check(RefuseInfinite);
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
      option->check(RefuseMisread<T>);
    if constexpr (std::is_same_v<T, std::string>) option->check(RefuseRemote);
    return option->group(group_)->capture_default_str();
  }
  // No range keeps NaN out, and CLI11 takes nothing for 0.
  static std::string RefuseInfinite(const std::string& number);
  // TensorFlow opens gs://bucket/run; here that would be a folder of this name.
  static std::string RefuseRemote(const std::string& text);
  // CLI11 reads 010 as 8, and what is too large as the largest number.
  template <typename T>
  static std::string RefuseMisread(const std::string& text) {
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
  void CheckKnown(const std::string& argument) const;
  // The flag that `flag` is the beginning of. Throws UsageError that names them if there are
  // several.
  std::string Whole(const std::string& flag) const;
  // Whether `word` is the value of the bool `flag` before it.
  bool IsValueOfBool(const std::string& flag, const std::string& word) const;
  std::vector<std::string> Normalize(const std::vector<std::string>& arguments) const;
  void PrintHelp(bool full);

  struct Ignored {
    CLI::Option* option;
    std::string instead;
  };
  struct Spelling {
    std::string name, flag, value, allowed;
    // "50" -> "imagenet_resnet_v2_50". Throws UsageError.
    std::string Translate(const std::string& given) const;
  };
  const Spelling* FindSpelling(const std::string& name) const;

  CLI::App app_;
  std::string group_ = "Options";
  std::vector<Ignored> ignored_;
  std::vector<Spelling> spellings_;
  std::vector<std::string> argparse_flags_;
  std::function<void()> before_help_;
};

}  // namespace carole::commands
