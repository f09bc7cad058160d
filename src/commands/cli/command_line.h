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

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/commands/cli/flag.h"

namespace carole::commands {

// Values of flags by flag name. The values of a list are joined with commas.
using GivenFlags = std::map<std::string, std::string>;
// Returns "--name=value --name=value".
std::string JoinFlags(const GivenFlags& given);

// "One of: a, b." for the help of a flag whose values are checked elsewhere. Flag::OneOf() adds
// this text itself. `names`: "a, b" or "a or b".
std::string OneOf(std::string names);

class CommandLine {
 public:
  // `name`: the whole command, such as "carole train". `summary`: what the command does, in full
  // sentences. `examples`: command lines that --help shows at the end.
  CommandLine(std::string name, std::string summary, std::vector<std::string> examples);

  // Replaces the usage line, "carole train [FLAGS]".
  void SetUsage(const std::string& usage) { usage_ = usage; }

  // Help lists flags that are added from now on under this heading. A heading can be used again.
  void Group(const std::string& heading) { group_ = heading; }

  // Adds a flag that is stored in `value`, which must outlive this object. `names`: the flag and
  // its aliases, "dataset_dir,data_dir". The present content of `value` is the default. A vector is
  // a comma list; empty entries do not count: `--flag=` is an empty list. Returns the flag, so that
  // callers can chain what it allows: .Between(0, 9).
  template <typename T>
  Flag& Add(const std::string& names, T& value, const std::string& help,
            HelpLevel level = HelpLevel::kAdvanced) {
    return AddFlag(names, help, level).Store(value);
  }
  template <typename T>
  Flag& AddPositive(const std::string& names, T& value, const std::string& help,
                    HelpLevel level = HelpLevel::kAdvanced) {
    return Add(names, value, help, level).Positive();
  }
  template <typename T>
  Flag& AddNonNegative(const std::string& names, T& value, const std::string& help,
                       HelpLevel level = HelpLevel::kAdvanced) {
    return Add(names, value, help, level).NonNegative();
  }
  // Adds a flag whose value is a file or a folder.
  Flag& AddPath(const std::string& names, std::string& value, const std::string& help,
                HelpLevel level = HelpLevel::kAdvanced) {
    return Add(names, value, help, level).SetType(Flag::Type::kPath);
  }
  Flag& AddPathList(const std::string& names, std::string& value, const std::string& help,
                    HelpLevel level = HelpLevel::kAdvanced) {
    return Add(names, value, help, level).SetType(Flag::Type::kPathList);
  }
  // Adds a flag whose values have names, such as those of an enum.
  template <typename T>
  Flag& AddChoice(const std::string& names, T& value,
                  std::vector<std::pair<std::string, T>> choices, const std::string& help,
                  HelpLevel level = HelpLevel::kAdvanced) {
    return AddFlag(names, help, level).StoreChoice(value, std::move(choices));
  }

  // Adds an argument without a name. A vector takes all arguments that are left.
  template <typename T>
  Flag& AddPositional(const std::string& name, T& value, const std::string& help) {
    return AddFlag(name, help, HelpLevel::kBasic).Store(value).MakePositional();
  }
  template <typename T>
  Flag& AddPositionalPath(const std::string& name, T& value, const std::string& help) {
    return AddPositional(name, value, help).SetType(Flag::Type::kPath);
  }

  // Help marks this flag "(required)" as long as it has no default. Only for flags that the command
  // checks itself, after a recipe's defaults are set; Flag::Required() is checked before that.
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
  // Full help shows this entry under its heading, after all flags.
  void SetNote(const std::string& heading, const std::string& name, const std::string& text);
  // Sets a function that is called before help is printed.
  void BeforeHelp(std::function<void()> hook) { before_help_ = std::move(hook); }
  // Reads these flags as Python's argparse does. The beginning of a name stands for the name if it
  // fits no other of them, which the log says, and a bool may have its value in the next word.
  // `names` are separated by blanks; names of flags that do not exist are skipped.
  void ParseLikeArgparse(std::string_view names);

  bool HasFlag(const std::string& name) const { return FindFlag(name).flag != nullptr; }
  bool IsGiven(const std::string& name) const;

  // Returns every flag that was given on the command line or in a file, under its first name even
  // if an alias was written.
  GivenFlags given_flags() const;

  // Parses the arguments into the values of the flags. Returns false if help was asked for and
  // printed. Throws UsageError; for an unknown flag its text has the flag that
  // means the same here, or the nearest name.
  bool Parse(const std::vector<std::string>& arguments);

 private:
  // A flag that a name stands for. `is_negated`: the name is that of a bool with "no" in front.
  struct Found {
    Flag* flag = nullptr;
    bool is_negated = false;
  };
  struct Ignored {
    const Flag* flag;
    std::string instead;
  };
  struct ValueAlias {
    std::string name, flag, value, allowed;
    std::string Insert(const std::string& given) const;
    // Throws UsageError if the given value is not allowed.
    std::string Translate(const std::string& given) const;
  };
  // The arguments, after names are resolved.
  struct Words {
    std::vector<std::pair<Flag*, std::string>> flags;  // with their values
    std::vector<std::string> positionals;
  };

  Flag& AddFlag(const std::string& names, const std::string& help, HelpLevel level);
  Flag& AddUnread(const std::string& name, const std::string& help);
  void AddIgnoredFlag(Flag& flag, const std::string& instead, DescribeWanted describe_wanted);
  Found FindFlag(const std::string& name) const;
  // The same. Throws UsageError if there is no such flag.
  Found RequireFlag(const std::string& name) const;
  // Returns what to do instead of giving a flag that the command does not have.
  std::string Advise(const std::string& name) const;
  const ValueAlias* FindValueAlias(const std::string& name) const;
  // Throws UsageError if a prefix of this flag is a flag of other programs, and the program of the
  // recipe has none of that meaning.
  void RequireOnlyMeaning(const std::string& prefix, const std::string& flag) const;
  // Returns the one argparse-like flag that begins with `flag`, or `flag` itself if it is a flag or
  // none fits. Throws UsageError if several fit.
  std::string ExpandPrefix(const std::string& flag) const;
  // Whether `word` can be the value of a bool that stands in front of it.
  bool IsValueOfBool(const Flag& flag, const std::string& name, const std::string& word) const;
  // Reads the flag in arguments[i] and its value, which may be the next word: then `i` moves there.
  std::pair<Flag*, std::string> ReadFlag(const std::vector<std::string>& arguments,
                                         size_t& i) const;
  Words ReadWords(const std::vector<std::string>& arguments) const;
  void GiveConfigFile(const std::string& path);
  void GivePositionals(const std::vector<std::string>& words);
  void CheckRequired() const;
  [[noreturn]] void Fail(const std::string& problem) const;
  bool IsRequired(const Flag& flag) const;
  std::string FlagHelp(const Flag& flag) const;
  std::string UsageText() const;
  void PrintHelp(bool full) const;

  std::string name_, summary_, usage_;
  std::vector<std::string> examples_;
  std::string group_;
  std::vector<std::unique_ptr<Flag>> flags_;  // in the order in which they were added
  std::string config_;                        // --config
  std::set<std::string> required_;
  std::vector<Ignored> ignored_;
  std::vector<ValueAlias> value_aliases_;
  std::vector<std::string> argparse_flags_;
  std::string note_;  // for full help
  std::function<void()> before_help_;
};

}  // namespace carole::commands
