// How flags with absl's semantics are parsed by CLI11.
//
// The task. Jobs of TF-Slim's programs come with command lines that absl (and, in TensorFlow 1.4,
// Python's argparse) used to read. They must mean the same here, and the same values must be
// refused. CLI11 offers types, checks, defaults and TOML files. It differs from absl in this:
//   - it knows a name only in the spelling in which it was declared;
//   - it takes the next word as the value of `--flag=`, and never as the value of a bool;
//   - it reads 010 as 8 and an empty text as 0, and clamps numbers that are too large.
//
// So the words are brought into a form that both read alike before CLI11 sees them:
//
//   1. main() expands --flagfile (flag_files.cpp).
//   2. Normalize() rewrites each word that is a flag to `--name=value` or `--name`:
//        -learning-rate 0.1     one dash, dashes in names    --learning_rate 0.1
//        --train_b=4            argparse's abbreviations     --train_batch_size=4
//        --resnet_size 50       aliases that translate       --model_name=imagenet_resnet_v2_50
//        --sync_replicas False  a bool's value               --sync_replicas=False
//        --eval_dir=            an empty value               two words: --eval_dir and ""
//      Words that are no flags stay: values, negative numbers, -h, "--". An unknown name throws
//      here, with the nearest known name.
//   3. CLI11 parses, the last of several values wins (take_last). Validators added in
//      CommandLine::Finish() refuse what CLI11 would misread: NaN and infinity, 010, numbers beyond
//      the type, gs:// paths.
//   4. FlagFile applies the same rewriting to the names in a --config file.
//   5. SetDefault() changes the defaults of flags that were not given, after Parse(): only then is
//      it known which recipe was chosen and which flags were given.
//   6. ExplainError() turns CLI11's error texts into "--flag: got X, want Y". CLI11 2.1 has no
//      structured errors, so the texts are matched. A text that no pattern fits passes unchanged.
//
// A worked example, `carole train --resnet_size 50 -batch-size=8 --batch_size 16`: Normalize()
// returns {"--model_name=imagenet_resnet_v2_50", "--batch_size=8", "--batch_size", "16"}; CLI11
// stores 16; given_flags() is {batch_size: 16, model_name: imagenet_resnet_v2_50}, which ranks
// compare with each other and checkpoints record. An alias leaves no trace there, so two ranks that
// were given the same value under different names agree.
//
// The next word can be a bool's value only if the command has no positional arguments, or if the
// flag is one that argparse read. Elsewhere `--json 1` could be a flag and a file named 1.
#include "src/commands/cli/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <regex>
#include <set>

#include "src/commands/cli/help_format.h"
#include "src/core/error.h"
#include "src/core/log.h"
#include "src/core/text/join_names.h"
#include "src/core/text/nearest_name.h"

namespace carole::commands {
namespace {

constexpr const char* kFullHelp = "helpfull";
constexpr std::string_view kGeneral = "General";
constexpr std::string_view kOtherPrograms = "Flags of other programs";

std::string Underscored(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// A TOML file of flags.
class FlagFile : public CLI::ConfigTOML {
 public:
  // Replaces a name and its values by the flag's name here and the values that it takes.
  using Translate = std::function<void(std::string& name, std::vector<std::string>& values)>;
  explicit FlagFile(Translate translate) : translate_(std::move(translate)) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    std::vector<CLI::ConfigItem> items = CLI::ConfigTOML::from_config(input);
    std::set<std::string> names;
    for (CLI::ConfigItem& item : items) {
      if (!item.parents.empty()) {
        throw UsageError(fmt::format(
            "[config] section [{}]: sections are not allowed; write flags as NAME = VALUE without "
            "a section",
            JoinTexts(item.parents, ".")));
      }
      item.name = Underscored(item.name);
      if (!names.insert(item.name).second)
        throw UsageError(fmt::format("[config] {}: is there twice; give it once", item.name));
      translate_(item.name, item.inputs);
    }
    return items;
  }

 private:
  Translate translate_;
};

// Describes the values that an option's type and check allow. The last part of get_type_name() is
// the description of the check.
std::string AllowedText(const CLI::Option& option) {
  if (IsBoolOption(option)) return "true or false";
  const std::string type = option.get_type_name();
  const bool is_int = type.find("INT") != std::string::npos;
  std::string text = is_int ? "a whole number" : type.starts_with("FLOAT") ? "a number" : "text";
  if (type.starts_with("PATH")) text = "a path";
  if (type.find("NONNEGATIVE") != std::string::npos) return text + " of at least 0";
  return type.find("POSITIVE") != std::string::npos ? text + " above 0" : text;
}

// Rewrites the text of a CLI11 error as "--flag: got X, want Y". CLI11 knows only the types of
// values, and it writes a range with one end up to the largest double, which has 309 digits.
std::string ExplainError(const CLI::App& app, const std::string& text) {
  std::smatch match;
  const auto option = [&] { return app.get_option_no_throw(match[1]); };
  static const std::regex no_number("Could not convert: (--\\w+) = (?:.*,)?(.*)"),
      out_of_range("(--\\w+): Value (.*) not in range \\[?(.*)(?: to | - )(.*?)\\]?"),
      no_value("(--\\w+): 1 required .* missing"), no_member("(--\\w+): (.*) not in \\{(.*)\\}"),
      no_conversion("(--\\w+): Value (.*) could not be converted to .*"),
      unreadable("(.*) was not readable \\(missing\\?\\)"), missing("(.*) is required");
  if (std::regex_match(text, match, no_member)) {
    return fmt::format("{}: got {}, want one of {}", match[1].str(), match[2].str(),
                       std::regex_replace(match[3].str(), std::regex(","), ", "));
  }
  if (std::regex_match(text, match, unreadable))
    return fmt::format("--config: {}: cannot be read", match[1].str());
  if (std::regex_match(text, match, missing)) return match[1].str() + ": missing";
  if (std::regex_match(text, match, no_value) && option() != nullptr) {
    return fmt::format("{}: its value is missing, want {}", match[1].str(), AllowedText(*option()));
  }
  const bool in_range = std::regex_match(text, match, out_of_range);
  if (in_range && match[4].length() < 20 && !match[4].str().ends_with("e+308")) {
    return fmt::format("{}: got {}, want {} to {}", match[1].str(), match[2].str(), match[3].str(),
                       match[4].str());
  }
  if ((in_range || std::regex_match(text, match, no_number) ||
       std::regex_match(text, match, no_conversion)) &&
      option() != nullptr) {
    return fmt::format("{}: got {}, want {}", match[1].str(), match[2].str(),
                       AllowedText(*option()));
  }
  return text;
}

std::string IgnoredHelp(const std::string& instead) {
  return "Accepted without effect: " + instead + ".";
}

}  // namespace

std::string ValidateFlagFile(const std::string& path) {
  constexpr uintmax_t kMaxBytes = uintmax_t{1} << 20;
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::exists(path, error)) return "";  // CLI11 reports a missing file
  if (!fs::is_regular_file(path, error)) return path + ": is not a regular file";
  const uintmax_t size = fs::file_size(path, error);
  if (size <= kMaxBytes) return "";
  return fmt::format("{}: is too long: got {} bytes, want at most {}", path, size, kMaxBytes);
}

std::string OneOf(std::string names) {
  constexpr std::string_view kOr = " or ";
  if (const size_t last = names.find(kOr); last != std::string::npos)
    names.replace(last, kOr.size(), ", ");
  return "One of: " + names + ".";
}

CommandLine::CommandLine(const std::string& name, const std::string& summary,
                         std::vector<std::string> examples)
    : app_(summary, name), examples_(std::move(examples)), group_(kGeneral) {
  app_.option_defaults()->take_last();
  app_.set_help_flag("-h,--help", "Print the most important flags and examples.")->group(group_);
  app_.add_flag(std::string("--") + kFullHelp)->description("Print all flags.")->group(group_);
  CLI::Option* config =
      app_.set_config("--config", "", "Read flags from this TOML file, as NAME = VALUE lines.");
  config->check(ValidateFlagFile)->type_name("PATH")->group(group_);
  app_.add_option("--flagfile",  // flag_files.cpp reads it
                  "Read flags from this file, one per line as on the command line.")
      ->type_name("PATH")
      ->configurable(false)
      ->group(group_);
  app_.config_formatter(std::make_shared<FlagFile>([this](auto& flag, auto& values) {
    if (const ValueAlias* alias = FindValueAlias(flag)) {
      flag = alias->flag;
      for (std::string& value : values) value = alias->Translate(value);
    }
    CheckKnown(flag);
    const CLI::Option* option = app_.get_option_no_throw("--" + flag);
    if (values.size() == 1 || option == nullptr || IsListOption(*option)) return;
    throw UsageError(fmt::format("[config] {}: got {} values, want one, as NAME = VALUE", flag,
                                 values.empty() ? "no" : std::to_string(values.size())));
  }));
}

std::string CommandLine::WithDashes(const std::string& names) {
  std::string dashed = "--";
  for (char c : names) dashed += c == ',' ? ",--" : std::string(1, c);
  return dashed;
}

std::string CommandLine::ValidateFinite(const std::string& text) {
  if (text.empty()) return "got nothing, want a number";
  double number = 0;
  if (!CLI::detail::lexical_cast(text, number)) return "";
  if (!std::isfinite(number)) return fmt::format("got {}, want a finite number", text);
  constexpr double kMaxValue = std::numeric_limits<float>::max();  // devices compute in fp32
  const bool fits = std::abs(number) <= kMaxValue;
  return fits ? "" : fmt::format("got {}, want a number of at most {:.2g}", text, kMaxValue);
}

std::string CommandLine::ValidateLocalPath(const std::string& text) {
  static const std::regex remote("[A-Za-z][A-Za-z0-9+.-]*://.*");
  if (!std::regex_match(text, remote)) return "";
  return fmt::format("got {}, want a path on this machine; mount remote storage first", text);
}

CLI::Option* CommandLine::AddBool(const std::string& name, bool& value, const std::string& help,
                                  HelpLevel level) {
  return Finish<bool>(app_.add_flag(fmt::format("--{0},!--no{0}", name), value, help), level)
      ->default_str(value ? "true" : "false");
}

CLI::Option* CommandLine::AddUnread(const std::string& name, const std::string& help) {
  return app_.add_option("--" + name, help)
      ->expected(1)
      ->type_name("TEXT")
      ->group(std::string(kOtherPrograms));
}

void CommandLine::FinishIgnored(CLI::Option* option, const std::string& instead,
                                DescribeWanted describe_wanted) {
  if (describe_wanted != nullptr) {
    option->check([describe_wanted](const std::string& value) {
      const std::string wanted = describe_wanted(value);
      return wanted.empty() ? "" : fmt::format("got {}, want {}", value, wanted);
    });
  }
  ignored_.push_back({option, instead});
}

void CommandLine::AddIgnored(const std::string& name, const std::string& instead,
                             DescribeWanted describe_wanted) {
  FinishIgnored(AddUnread(name, IgnoredHelp(instead)), instead, describe_wanted);
}

void CommandLine::AddIgnoredBool(const std::string& name, const std::string& instead,
                                 DescribeWanted describe_wanted) {
  const std::string help = IgnoredHelp(instead);
  CLI::Option* option = app_.add_flag(fmt::format("--{0},!--no{0}", name), help);
  FinishIgnored(option->group(std::string(kOtherPrograms)), instead, describe_wanted);
}

void CommandLine::AddValueAlias(const std::string& name, const std::string& flag,
                                const std::string& value, const std::string& allowed) {
  const ValueAlias alias{name, flag, value, allowed};
  std::string help = fmt::format("Same as --{}={}.", flag, alias.Insert("VALUE"));
  if (!allowed.empty()) help += " " + OneOf(JoinTexts(CLI::detail::split(allowed, ',')));
  AddUnread(name, help);
  value_aliases_.push_back(alias);
}

const CommandLine::ValueAlias* CommandLine::FindValueAlias(const std::string& name) const {
  const auto found = std::find_if(value_aliases_.begin(), value_aliases_.end(),
                                  [&](const ValueAlias& alias) { return alias.name == name; });
  return found == value_aliases_.end() ? nullptr : &*found;
}

std::string CommandLine::ValueAlias::Insert(const std::string& given) const {
  const size_t hole = value.find("{}");
  return hole == std::string::npos ? value : value.substr(0, hole) + given + value.substr(hole + 2);
}

std::string CommandLine::ValueAlias::Translate(const std::string& given) const {
  const auto choices = allowed.empty() ? std::vector{given} : CLI::detail::split(allowed, ',');
  if (std::find(choices.begin(), choices.end(), given) == choices.end()) {
    throw UsageError(
        fmt::format("[flags] --{}: no such choice: got {}, want one of {}", name, given, allowed));
  }
  return Insert(given);
}

void CommandLine::SetDefault(const std::string& name, const std::string& value) {
  CLI::Option* option = app_.get_option_no_throw("--" + name);
  if (option == nullptr || option->count() > 0) return;
  option->trigger_on_parse(false);  // else CLI11 believes that a list's callback has run already
  option->run_callback_for_default()->default_val(value);
}

void CommandLine::LogIgnored() const {
  for (const Ignored& ignored : ignored_) {
    if (ignored.option->count() > 0)
      LogInfo("flags", "{}: {}", ignored.option->get_name(), ignored.instead);
  }
}

bool CommandLine::HasFlag(const std::string& name) const {
  return app_.get_option_no_throw("--" + name) != nullptr;
}

bool CommandLine::IsGiven(const std::string& name) const { return app_.count("--" + name) > 0; }

GivenFlags CommandLine::given_flags() const {
  GivenFlags given;
  for (const CLI::Option* option : app_.get_options()) {
    if (option->count() == 0 || option->get_lnames().empty()) continue;
    const std::vector<std::string>& values = option->results();
    given[option->get_lnames().front()] =
        IsListOption(*option) ? CLI::detail::join(values) : values.back();
  }
  return given;
}

std::string JoinFlags(const GivenFlags& given) {
  std::string text;
  for (const auto& [name, value] : given)
    text += fmt::format("{}--{}={}", text.empty() ? "" : " ", name, value);
  return text;
}

void CommandLine::CheckKnown(const std::string& flag) const {
  if (app_.get_option_no_throw("--" + flag) != nullptr) return;
  std::vector<std::string> names;
  for (const CLI::Option* option : app_.get_options())
    names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
  const std::string nearest = NearestName(flag, names);
  throw UsageError(
      fmt::format("[flags] --{}: {} has no such flag; {}", flag, app_.get_name(),
                  nearest.empty() ? "see --helpfull" : "did you mean --" + nearest + "?"));
}

void CommandLine::ParseLikeArgparse(std::string_view names) {
  for (const std::string& name : CLI::detail::split(std::string(names), ' ')) {
    for (const std::string& form : {name, "no" + name}) {
      if (HasFlag(form)) argparse_flags_.push_back(form);
    }
  }
}

std::string CommandLine::ExpandPrefix(const std::string& flag) const {
  if (HasFlag(flag)) return flag;
  std::string last, all;
  for (const std::string& name : argparse_flags_) {
    if (!name.starts_with(flag)) continue;
    all += (all.empty() ? "--" : ", --") + name;
    last = name;
  }
  if (all.size() > last.size() + 2) {
    throw UsageError(fmt::format(
        "[flags] --{}: is ambiguous: it may stand for {}; write the whole name", flag, all));
  }
  return last.empty() ? flag : last;
}

bool CommandLine::IsValueOfBool(const std::string& flag, const std::string& word) const {
  constexpr std::string_view kValues[] = {"true", "t", "1", "false", "f", "0"};
  const bool has_positionals = std::ranges::any_of(
      app_.get_options(), [](const CLI::Option* option) { return option->get_positional(); });
  const bool may_be =
      !has_positionals || std::ranges::find(argparse_flags_, flag) != argparse_flags_.end();
  return may_be && IsBoolOption(*app_.get_option("--" + flag)) &&
         std::find(std::begin(kValues), std::end(kValues), CLI::detail::to_lower(word)) !=
             std::end(kValues);
}

// Step 2 of the essay above.
std::vector<std::string> CommandLine::Normalize(const std::vector<std::string>& arguments) const {
  std::vector<std::string> words;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const size_t dashes = argument.starts_with("--") ? 2 : 1;
    if (argument.size() < 3 || argument[0] != '-' || std::isalpha(argument[dashes]) == 0) {
      words.push_back(argument);  // a value, a negative number, -h, --
      continue;
    }
    const size_t equals = std::min(argument.find('='), argument.size());
    std::string flag = ExpandPrefix(Underscored(argument.substr(dashes, equals - dashes)));
    std::string value = argument.substr(equals);
    if (const ValueAlias* alias = FindValueAlias(flag)) {
      if (value.empty() && ++i == arguments.size())
        throw UsageError(fmt::format("[flags] --{}: its value is missing", flag));
      flag = alias->flag;
      value = "=" + alias->Translate(value.empty() ? arguments[i] : value.substr(1));
    }
    CheckKnown(flag);
    if (value.empty() && i + 1 < arguments.size() && IsValueOfBool(flag, arguments[i + 1]))
      value = "=" + arguments[++i];
    if (value == "=" && IsBoolOption(*app_.get_option("--" + flag)))
      throw UsageError(fmt::format("[flags] --{}: got nothing, want true or false", flag));
    if (value == "=") {  // CLI11 would take the next word as the value
      words.push_back("--" + flag);
      words.emplace_back();
    } else {
      words.push_back(fmt::format("--{}{}", flag, value));
    }
  }
  return words;
}

bool CommandLine::IsBasic(const CLI::Option& option) const {
  return option.get_positional() || basic_.contains(&option) || IsRequired(option);
}

bool CommandLine::IsRequired(const CLI::Option& option) const {
  if (option.get_required()) return true;
  return option.get_default_str().empty() &&
         std::ranges::any_of(option.get_lnames(),
                             [&](const std::string& name) { return required_.contains(name); });
}

std::string CommandLine::FlagHelp(const CLI::Option& option) const {
  return (IsRequired(option) ? "(required) " : "") + option.get_description() +
         AllowedValues(option) + DefaultText(option);
}

std::string CommandLine::UsageText() const {
  if (!usage_.empty()) return usage_;
  std::string usage = app_.get_name() + " [FLAGS]";
  for (const CLI::Option* option : app_.get_options()) {
    if (!option->get_positional()) continue;
    usage += option->get_required() ? " " + OptionSpec(*option) : " [" + OptionSpec(*option) + "]";
  }
  return usage;
}

void CommandLine::PrintHelp(bool full) const {
  std::vector<std::string> headings;  // in the order in which the command added them
  std::map<std::string, std::string> entries;
  int num_flags = 0;
  for (const CLI::Option* option : app_.get_options()) {
    num_flags += option->get_positional() ? 0 : 1;
    if (!full && !IsBasic(*option)) continue;
    const std::string heading = option->get_positional() ? "Arguments" : option->get_group();
    if (!entries.contains(heading)) headings.push_back(heading);
    entries[heading] += HelpEntry(OptionSpec(*option), FlagHelp(*option));
  }
  for (const std::string_view last : {kGeneral, kOtherPrograms}) {
    const auto found = std::ranges::find(headings, last);
    if (found != headings.end()) std::rotate(found, found + 1, headings.end());
  }
  std::string page = WrapText(app_.get_description(), 0, 0) + "\n\nUsage: " + UsageText() + "\n";
  for (const std::string& heading : headings) page += "\n" + heading + ":\n" + entries[heading];
  page += "\nExamples:\n";
  for (const std::string& example : examples_) page += "  " + example + "\n";
  if (!full)
    page += fmt::format("\n`{} --helpfull` lists all {} flags.\n", app_.get_name(), num_flags);
  fmt::print("{}", page);
}

bool CommandLine::Parse(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = Normalize(arguments);
  const bool full =
      std::find(words.begin(), words.end(), std::string("--") + kFullHelp) != words.end();
  std::reverse(words.begin(), words.end());  // CLI11 wants them so
  try {
    if (full) throw CLI::CallForHelp();
    app_.parse(words);
  } catch (const CLI::CallForHelp&) {
    if (before_help_) before_help_();
    PrintHelp(full);
    return false;
  } catch (const CLI::ParseError& error) {
    throw UsageError(fmt::format("[flags] {}: {}; see {} --help", app_.get_name(),
                                 ExplainError(app_, error.what()), app_.get_name()));
  }
  return true;
}

}  // namespace carole::commands
