// How flags with absl's semantics are parsed.
//
// The task. Jobs of TF-Slim's programs come with command lines that absl (and, in TensorFlow 1.4,
// Python's argparse) used to read. They must mean the same here, and the same values must be
// refused.
//
// The words are read in these steps:
//
//   1. main() expands --flagfile (flag_files.cpp).
//   2. ReadWords() finds the flag and the value of each word:
//        -learning-rate 0.1     one dash, dashes in names    learning_rate, "0.1"
//        --train_b=4            argparse's abbreviations     train_batch_size, "4"
//        --resnet_size 50       aliases that translate       model_name, "imagenet_resnet_v2_50"
//        --sync_replicas False  a bool's value               sync_replicas, "False"
//        --nofast_mode          a bool's other name          fast_mode, "false"
//        --eval_dir=            an empty value               eval_dir, ""
//      Words that are no flags are arguments without a name. An unknown name throws here, with the
//      nearest known name.
//   3. If one of them asks for help, it is printed. Otherwise the flags read their values in order,
//      so the last of several wins. Flag::Give() refuses what a flag does not allow.
//   4. --config FILE gives flags that are not on the command line (config_file.h).
//   5. SetDefault() changes the defaults of flags that were not given, after Parse(): only then is
//      it known which recipe was chosen and which flags were given.
//
// A worked example, `carole train --resnet_size 50 -batch-size=8 --batch_size 16`: ReadWords()
// returns (model_name, "imagenet_resnet_v2_50"), (batch_size, "8") and (batch_size, "16"). 16 is
// stored. given_flags() is {batch_size: 16, model_name: imagenet_resnet_v2_50}, which ranks compare
// with each other and checkpoints record. An alias leaves no trace there, so two ranks that were
// given the same value under different names agree.
//
// The next word can be a bool's value only if the command has no positional arguments, or if the
// flag is one that argparse read. Elsewhere `--json 1` could be a flag and a file named 1.
#include "src/commands/cli/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "src/commands/cli/config_file.h"
#include "src/commands/cli/foreign_flags.h"
#include "src/commands/cli/help_format.h"
#include "src/core/check.h"
#include "src/core/error.h"
#include "src/core/log.h"
#include "src/core/text/join_names.h"
#include "src/core/text/nearest_name.h"

namespace carole::commands {
namespace {

constexpr std::string_view kHelp = "help";
constexpr std::string_view kFullHelp = "helpfull";
constexpr std::string_view kConfig = "config";
constexpr std::string_view kFlagFile = "flagfile";
constexpr std::string_view kGeneral = "General";
constexpr std::string_view kOtherPrograms = "Flags of other programs";

std::string Underscored(std::string name) {
  std::ranges::replace(name, '-', '_');
  return name;
}

// Whether a word is -flag or --flag, with or without a value. A negative number is not.
bool IsFlagWord(std::string_view word) {
  const size_t dashes = word.starts_with("--") ? 2 : 1;
  return word.starts_with('-') && word.size() > dashes &&
         std::isalpha(static_cast<unsigned char>(word[dashes])) != 0;
}

// Returns "false" for a text that means true, and vice versa. Any other text stays.
std::string Negated(const std::string& text) {
  bool value = false;
  return ReadValue(text, value) ? text : ShowValue(!value);
}

std::string IgnoredHelp(const std::string& instead) {
  return "Accepted without effect: " + instead + ".";
}

}  // namespace

std::string OneOf(std::string names) {
  constexpr std::string_view kOr = " or ";
  if (const size_t last = names.find(kOr); last != std::string::npos)
    names.replace(last, kOr.size(), ", ");
  return "One of: " + names + ".";
}

CommandLine::CommandLine(std::string name, std::string summary, std::vector<std::string> examples)
    : name_(std::move(name)),
      summary_(std::move(summary)),
      examples_(std::move(examples)),
      group_(kGeneral) {
  AddFlag(std::string(kHelp), "Print the most important flags and examples.", HelpLevel::kAdvanced)
      .SetType(Flag::Type::kSwitch);
  AddFlag(std::string(kFullHelp), "Print all flags.", HelpLevel::kAdvanced)
      .SetType(Flag::Type::kSwitch);
  AddPath(std::string(kConfig), config_, "Read flags from this TOML file, as NAME = VALUE lines.");
  AddFlag(std::string(kFlagFile),  // flag_files.cpp reads it
          "Read flags from this file, one per line as on the command line.", HelpLevel::kAdvanced)
      .SetType(Flag::Type::kPath);
}

Flag& CommandLine::AddFlag(const std::string& names, const std::string& help, HelpLevel level) {
  flags_.push_back(std::make_unique<Flag>(names, help));
  return flags_.back()->SetGroup(group_).SetLevel(level);
}

Flag& CommandLine::AddUnread(const std::string& name, const std::string& help) {
  return AddFlag(name, help, HelpLevel::kAdvanced).SetGroup(std::string(kOtherPrograms));
}

void CommandLine::AddIgnoredFlag(Flag& flag, const std::string& instead,
                                 DescribeWanted describe_wanted) {
  ignored_.push_back({&flag, instead});
  if (describe_wanted == nullptr) return;
  flag.Satisfies([describe_wanted](const std::string& value) {
    const std::string wanted = describe_wanted(value);
    return wanted.empty() ? "" : fmt::format("got {}, want {}", value, wanted);
  });
}

void CommandLine::AddIgnored(const std::string& name, const std::string& instead,
                             DescribeWanted describe_wanted) {
  AddIgnoredFlag(AddUnread(name, IgnoredHelp(instead)), instead, describe_wanted);
}

void CommandLine::AddIgnoredBool(const std::string& name, const std::string& instead,
                                 DescribeWanted describe_wanted) {
  Flag& flag = AddUnread(name, IgnoredHelp(instead)).SetType(Flag::Type::kBool);
  AddIgnoredFlag(flag, instead, describe_wanted);
}

void CommandLine::AddValueAlias(const std::string& name, const std::string& flag,
                                const std::string& value, const std::string& allowed) {
  const ValueAlias alias{name, flag, value, allowed};
  std::string help = fmt::format("Same as --{}={}.", flag, alias.Insert("VALUE"));
  if (!allowed.empty()) help += " " + OneOf(JoinTexts(SplitText(allowed, ',')));
  AddUnread(name, help);
  value_aliases_.push_back(alias);
}

const CommandLine::ValueAlias* CommandLine::FindValueAlias(const std::string& name) const {
  const auto found = std::ranges::find(value_aliases_, name, &ValueAlias::name);
  return found == value_aliases_.end() ? nullptr : &*found;
}

std::string CommandLine::ValueAlias::Insert(const std::string& given) const {
  const size_t hole = value.find("{}");
  return hole == std::string::npos ? value : value.substr(0, hole) + given + value.substr(hole + 2);
}

std::string CommandLine::ValueAlias::Translate(const std::string& given) const {
  const auto choices = allowed.empty() ? std::vector{given} : SplitText(allowed, ',');
  if (std::ranges::find(choices, given) == choices.end()) {
    throw UsageError(
        fmt::format("[flags] --{}: no such choice: got {}, want one of {}", name, given, allowed));
  }
  return Insert(given);
}

void CommandLine::SetDefault(const std::string& name, const std::string& value) {
  Flag* const flag = FindFlag(name).flag;
  if (flag == nullptr || flag->is_given()) return;
  const std::string error = flag->Assign(value);
  CAROLE_CHECK(error.empty(), "default of --{}: {}", name, error);
}

void CommandLine::SetNote(const std::string& heading, const std::string& name,
                          const std::string& text) {
  note_ = "\n" + heading + ":\n" + HelpEntry(name, text);
}

void CommandLine::LogIgnored() const {
  for (const Ignored& ignored : ignored_) {
    if (ignored.flag->is_given())
      LogInfo("flags", "--{}: {}", ignored.flag->name(), ignored.instead);
  }
}

CommandLine::Found CommandLine::FindFlag(const std::string& name) const {
  for (const auto& flag : flags_) {
    if (flag->is_positional()) continue;
    if (std::ranges::find(flag->names(), name) != flag->names().end()) return {flag.get(), false};
    if (flag->is_bool() && !flag->is_switch() && name == "no" + flag->name())
      return {flag.get(), true};
  }
  return {};
}

CommandLine::Found CommandLine::RequireFlag(const std::string& name) const {
  if (const Found found = FindFlag(name); found.flag != nullptr) return found;
  throw UsageError(fmt::format("[flags] --{}: {} has no such flag; {}", name, name_, Advise(name)));
}

std::string CommandLine::Advise(const std::string& name) const {
  const auto has_flag = [this](const std::string& flag) { return HasFlag(flag); };
  if (std::string advice = AdviseOnForeignFlag(name, has_flag); !advice.empty()) return advice;
  std::vector<std::string> names;
  for (const auto& flag : flags_) {
    if (!flag->is_positional())
      names.insert(names.end(), flag->names().begin(), flag->names().end());
  }
  const std::string nearest = NearestName(name, names);
  return nearest.empty() ? "see --helpfull" : "did you mean --" + nearest + "?";
}

bool CommandLine::IsGiven(const std::string& name) const {
  const Flag* const flag = FindFlag(name).flag;
  return flag != nullptr && flag->is_given();
}

GivenFlags CommandLine::given_flags() const {
  GivenFlags given;
  for (const auto& flag : flags_) {
    if (flag->is_given() && !flag->is_positional()) given[flag->name()] = flag->given();
  }
  return given;
}

std::string JoinFlags(const GivenFlags& given) {
  std::string text;
  for (const auto& [name, value] : given)
    text += fmt::format("{}--{}={}", text.empty() ? "" : " ", name, value);
  return text;
}

void CommandLine::ParseLikeArgparse(std::string_view names) {
  for (const std::string& name : SplitText(names, ' ')) {
    for (const std::string& form : {name, "no" + name}) {
      if (HasFlag(form)) argparse_flags_.push_back(form);
    }
  }
}

// num_epochs is short for num_epochs_per_decay of TF-Slim, but means train_epochs in other
// programs.
void CommandLine::RequireOnlyMeaning(const std::string& prefix, const std::string& flag) const {
  const std::string advice =
      AdviseOnForeignFlag(prefix, [this](const std::string& name) { return HasFlag(name); });
  const auto is_named = [&](const std::string& name) {
    return std::ranges::any_of(FindFlag(name).flag->names(), [&](const std::string& alias) {
      return advice.find("--" + alias) != std::string::npos;
    });
  };
  if (advice.empty() || std::ranges::any_of(argparse_flags_, is_named)) return;
  throw UsageError(fmt::format(
      "[flags] --{}: is short for --{}, but another flag in other programs; write --{}, or: {}",
      prefix, flag, flag, advice));
}

std::string CommandLine::ExpandPrefix(const std::string& flag) const {
  if (HasFlag(flag)) return flag;
  std::vector<std::string> fitting;
  for (const std::string& name : argparse_flags_) {
    if (name.starts_with(flag)) fitting.push_back(name);
  }
  if (fitting.size() > 1) {
    throw UsageError(
        fmt::format("[flags] --{}: is ambiguous: it may stand for --{}; write the whole name", flag,
                    JoinTexts(fitting, ", --")));
  }
  if (fitting.empty()) return flag;
  RequireOnlyMeaning(flag, fitting[0]);
  LogInfo("flags", "--{}: taken for --{}", flag, fitting[0]);
  return fitting[0];
}

bool CommandLine::IsValueOfBool(const Flag& flag, const std::string& name,
                                const std::string& word) const {
  bool value = false;
  const bool may_be = std::ranges::none_of(flags_, &Flag::is_positional) ||
                      std::ranges::find(argparse_flags_, name) != argparse_flags_.end();
  return may_be && flag.is_bool() && !flag.is_switch() && !ReadValue(word, value);
}

std::pair<Flag*, std::string> CommandLine::ReadFlag(const std::vector<std::string>& arguments,
                                                    size_t& i) const {
  const std::string& word = arguments[i];
  const size_t dashes = word.starts_with("--") ? 2 : 1;
  const size_t equals = std::min(word.find('='), word.size());
  std::string name = ExpandPrefix(Underscored(word.substr(dashes, equals - dashes)));
  const bool has_value = equals < word.size();
  std::string value = has_value ? word.substr(equals + 1) : "";
  const bool is_last = i + 1 == arguments.size();
  if (const ValueAlias* alias = FindValueAlias(name)) {
    if (!has_value && is_last) Fail(fmt::format("--{}: its value is missing", name));
    value = alias->Translate(has_value ? value : arguments[++i]);
    return {RequireFlag(alias->flag).flag, value};
  }
  const auto [flag, is_negated] = RequireFlag(name);
  if (!has_value && flag->is_bool()) {
    value = !is_last && IsValueOfBool(*flag, name, arguments[i + 1]) ? arguments[++i] : "true";
  } else if (!has_value) {
    if (is_last || (IsFlagWord(arguments[i + 1]) && arguments[i + 1].starts_with("--"))) {
      Fail(fmt::format("--{}: its value is missing, want {}", name, flag->Describe().wanted));
    }
    value = arguments[++i];
  }
  return {flag, is_negated ? Negated(value) : value};
}

CommandLine::Words CommandLine::ReadWords(const std::vector<std::string>& arguments) const {
  Words words;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--") {
      words.positionals.insert(words.positionals.end(), arguments.begin() + i + 1, arguments.end());
      break;
    }
    if (arguments[i] == "-h") {
      words.flags.emplace_back(FindFlag(std::string(kHelp)).flag, "true");
    } else if (IsFlagWord(arguments[i])) {
      words.flags.push_back(ReadFlag(arguments, i));
    } else {
      words.positionals.push_back(arguments[i]);
    }
  }
  return words;
}

void CommandLine::Fail(const std::string& problem) const {
  throw UsageError(fmt::format("[flags] {}: {}; see {} --help", name_, problem, name_));
}

void CommandLine::GiveConfigFile(const std::string& path) {
  std::vector<std::pair<Flag*, std::string>> values;
  for (auto& [name, texts] : ReadConfigFile(path)) {
    const ValueAlias* const alias = FindValueAlias(name);
    const auto [flag, is_negated] = RequireFlag(alias != nullptr ? alias->flag : name);
    if (flag->is_switch() || flag->name() == kConfig || flag->name() == kFlagFile)
      throw UsageError(fmt::format("[config] {}: is allowed on the command line only", name));
    if (texts.size() != 1 && !flag->is_list()) {
      throw UsageError(fmt::format("[config] {}: got {} values, want one, as NAME = VALUE", name,
                                   texts.empty() ? "no" : std::to_string(texts.size())));
    }
    if (alias != nullptr) texts[0] = alias->Translate(texts[0]);
    if (is_negated) texts[0] = Negated(texts[0]);
    if (!flag->is_given()) values.emplace_back(flag, JoinTexts(texts, ","));
  }
  for (const auto& [flag, value] : values) {
    if (const std::string error = flag->Give(value); !error.empty())
      Fail(fmt::format("--{}: {}", flag->name(), error));
  }
}

void CommandLine::GivePositionals(const std::vector<std::string>& words) {
  size_t next = 0;
  for (const auto& flag : flags_) {
    if (!flag->is_positional() || next == words.size()) continue;
    const size_t count = flag->is_list() ? words.size() - next : 1;
    if (const std::string error = flag->GiveEach(std::span(words).subspan(next, count));
        !error.empty())
      Fail(fmt::format("{}: {}", flag->name(), error));
    next += count;
  }
  if (next < words.size()) Fail(fmt::format("{}: is not a flag", words[next]));
}

void CommandLine::CheckRequired() const {
  for (const auto& flag : flags_) {
    if (flag->is_required() && !flag->is_given())
      Fail(fmt::format("{}{}: missing", flag->is_positional() ? "" : "--", flag->name()));
  }
}

bool CommandLine::Parse(const std::vector<std::string>& arguments) {
  const Words words = ReadWords(arguments);
  const auto asks_for = [&](std::string_view help) {
    return std::ranges::any_of(words.flags,
                               [&](const auto& word) { return word.first->name() == help; });
  };
  if (const bool full = asks_for(kFullHelp); full || asks_for(kHelp)) {
    if (before_help_) before_help_();
    PrintHelp(full);
    return false;
  }
  for (const auto& [flag, value] : words.flags) {
    if (const std::string error = flag->Give(value); !error.empty())
      Fail(fmt::format("--{}: {}", flag->name(), error));
  }
  GivePositionals(words.positionals);
  if (!config_.empty()) GiveConfigFile(config_);
  CheckRequired();
  return true;
}

bool CommandLine::IsRequired(const Flag& flag) const {
  if (flag.is_required()) return true;
  return flag.Show().empty() && std::ranges::any_of(flag.names(), [&](const std::string& name) {
           return required_.contains(name);
         });
}

std::string CommandLine::FlagHelp(const Flag& flag) const {
  return (IsRequired(flag) ? "(required) " : "") + flag.help() + AllowedValues(flag) +
         DefaultText(flag);
}

std::string CommandLine::UsageText() const {
  if (!usage_.empty()) return usage_;
  std::string usage = name_ + " [FLAGS]";
  for (const auto& flag : flags_) {
    if (!flag->is_positional()) continue;
    usage += flag->is_required() ? " " + FlagSpec(*flag) : " [" + FlagSpec(*flag) + "]";
  }
  return usage;
}

void CommandLine::PrintHelp(bool full) const {
  std::vector<std::string> headings;  // in the order in which the command added them
  std::map<std::string, std::string> entries;
  int num_flags = 0;
  for (const auto& flag : flags_) {
    num_flags += flag->is_positional() ? 0 : 1;
    if (!full && flag->level() != HelpLevel::kBasic && !IsRequired(*flag)) continue;
    const std::string heading = flag->is_positional() ? "Arguments" : flag->group();
    if (!entries.contains(heading)) headings.push_back(heading);
    entries[heading] += HelpEntry(FlagSpec(*flag), FlagHelp(*flag));
  }
  for (const std::string_view last : {kGeneral, kOtherPrograms}) {
    const auto found = std::ranges::find(headings, last);
    if (found != headings.end()) std::rotate(found, found + 1, headings.end());
  }
  std::string page = WrapText(summary_, 0, 0) + "\n\nUsage: " + UsageText() + "\n";
  for (const std::string& heading : headings) page += "\n" + heading + ":\n" + entries[heading];
  if (full) page += note_;
  page += "\nExamples:\n";
  for (const std::string& example : examples_) page += "  " + example + "\n";
  if (!full) page += fmt::format("\n`{} --helpfull` lists all {} flags.\n", name_, num_flags);
  fmt::print("{}", page);
}

}  // namespace carole::commands
