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

#include "src/core/error.h"
#include "src/core/log.h"
#include "src/core/text/join_names.h"
#include "src/core/text/nearest_name.h"

namespace carole::commands {
namespace {

std::string Underscored(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// TOML whose names are flags.
class FlagFile : public CLI::ConfigTOML {
 public:
  // `read` turns a name and its values into what the flag is called and takes here.
  using Read = std::function<void(std::string& name, std::vector<std::string>& values)>;
  explicit FlagFile(Read read) : read_(std::move(read)) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    std::vector<CLI::ConfigItem> items = CLI::ConfigTOML::from_config(input);
    std::set<std::string> names;
    for (CLI::ConfigItem& item : items) {
      if (!item.parents.empty()) {
        throw UsageError(
            fmt::format("[config] section [{}]: flags stand without a section, as NAME = VALUE",
                        JoinTexts(item.parents, ".")));
      }
      item.name = Underscored(item.name);
      if (!names.insert(item.name).second)
        throw UsageError(fmt::format("[config] {}: got it twice, want it once", item.name));
      read_(item.name, item.inputs);
    }
    return items;
  }

 private:
  Read read_;
};

bool IsList(const CLI::Option& option) { return option.get_delimiter() != '\0'; }

bool IsBool(const CLI::Option& option) {
  return option.get_type_size() == 0 || option.get_expected_max() == 0;
}

// Names, types and defaults as people write them: "--[no]report=true", "--seed INT=1".
class HelpFormat : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    const std::vector<std::string>& names = option->get_lnames();
    return names.size() == 2 && names[1] == "no" + names[0]
               ? "--[no]" + names[0]
               : Formatter::make_option_name(option, positional);
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    std::string type = IsBool(*option) ? "" : " " + option->get_type_name();
    const size_t range = type.find(":INT in ");
    if (range != std::string::npos) type.erase(range, 4);
    std::string value = option->get_default_str();
    if (IsList(*option)) {
      type += ",…";
      if (value.starts_with('[')) value = value.substr(1, value.size() - 2);
      if (value == "{}") value.clear();
    }
    return type + (value.empty() ? "" : "=" + value) +
           (option->get_required() ? " (required)" : "");
  }
};

constexpr const char* kFullHelp = "helpfull";

// The values that an option's type and check allow, as get_type_name() tells them.
std::string Wanted(const CLI::Option& option) {
  if (IsBool(option)) return "true or false";
  const std::string type = option.get_type_name();
  const bool whole = type.find("INT") != std::string::npos;
  std::string text = whole ? "a whole number" : type.starts_with("FLOAT") ? "a number" : "text";
  if (type.find("NONNEGATIVE") != std::string::npos) return text + " from 0 on";
  return type.find("POSITIVE") != std::string::npos ? text + " above 0" : text;
}

// What CLI11 says of wrong values, in our words: it knows no more than types, and spells out ranges
// with one end up to the largest double, 309 digits.
std::string Explain(const CLI::App& app, const std::string& text) {
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
  if (std::regex_match(text, match, missing)) return match[1].str() + ": is missing";
  if (std::regex_match(text, match, no_value) && option() != nullptr)
    return fmt::format("{}: its value is missing, want {}", match[1].str(), Wanted(*option()));
  const bool in_range = std::regex_match(text, match, out_of_range);
  if (in_range && match[4].length() < 20 && !match[4].str().ends_with("e+308")) {
    return fmt::format("{}: got {}, want {} to {}", match[1].str(), match[2].str(), match[3].str(),
                       match[4].str());
  }
  if ((in_range || std::regex_match(text, match, no_number) ||
       std::regex_match(text, match, no_conversion)) &&
      option() != nullptr)
    return fmt::format("{}: got {}, want {}", match[1].str(), match[2].str(), Wanted(*option()));
  return text;
}

}  // namespace

std::string RefuseFlagFile(const std::string& path) {
  constexpr uintmax_t kMaxBytes = uintmax_t{1} << 20;
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::exists(path, error)) return "";  // CLI11 says it
  if (!fs::is_regular_file(path, error)) return path + ": is no regular file";
  const uintmax_t size = fs::file_size(path, error);
  if (size <= kMaxBytes) return "";
  return fmt::format("{}: is too long: got {} bytes, want at most {}", path, size, kMaxBytes);
}

CommandLine::CommandLine(const std::string& name, const std::string& description)
    : app_(description, name) {
  app_.formatter(std::make_shared<HelpFormat>());
  app_.get_formatter()->column_width(44);
  app_.option_defaults()->take_last();
  app_.set_config("--config", "", "TOML file of flags, NAME = VALUE")->check(RefuseFlagFile);
  app_.add_option("--flagfile", "file of flags as on the command line, one a line")  // flag_files.h
      ->type_name("TEXT")
      ->configurable(false);
  app_.add_flag(std::string("--") + kFullHelp)
      ->description("Print this help and the other programs' flags");
  app_.config_formatter(std::make_shared<FlagFile>([this](auto& flag, auto& values) {
    if (const Spelling* spelling = FindSpelling(flag)) {
      flag = spelling->flag;
      for (std::string& value : values) value = spelling->Translate(value);
    }
    CheckKnown(flag);
    const CLI::Option* option = app_.get_option_no_throw("--" + flag);
    if (values.size() == 1 || option == nullptr || IsList(*option)) return;
    throw UsageError(fmt::format("[config] {}: got {} values, want one, as NAME = VALUE", flag,
                                 values.empty() ? "no" : std::to_string(values.size())));
  }));
}

std::string CommandLine::WithDashes(const std::string& names) {
  std::string dashed = "--";
  for (char c : names) dashed += c == ',' ? ",--" : std::string(1, c);
  return dashed;
}

std::string CommandLine::RefuseInfinite(const std::string& text) {
  if (text.empty()) return "got nothing, want a number";
  double number = 0;
  if (!CLI::detail::lexical_cast(text, number)) return "";
  if (!std::isfinite(number)) return fmt::format("got {}, want a finite number", text);
  constexpr double kMost = std::numeric_limits<float>::max();  // devices compute in fp32
  const bool fits = std::abs(number) <= kMost;
  return fits ? "" : fmt::format("got {}, want a number of at most {:.2g}", text, kMost);
}

std::string CommandLine::RefuseRemote(const std::string& text) {
  static const std::regex remote("[A-Za-z][A-Za-z0-9+.-]*://.*");
  if (!std::regex_match(text, remote)) return "";
  return fmt::format("got {}, want a path on this machine: mount what lies elsewhere", text);
}

CLI::Option* CommandLine::AddBool(const std::string& name, bool& value, const std::string& help) {
  return Finish<bool>(app_.add_flag(fmt::format("--{0},!--no{0}", name), value, help))
      ->default_str(value ? "true" : "false");
}

CLI::Option* CommandLine::AddUnread(const std::string& name, const std::string& help) {
  return app_.add_option("--" + name, help)->expected(1)->group(group_);
}

void CommandLine::FinishIgnored(CLI::Option* option, const std::string& instead, Refuse refuse) {
  if (refuse != nullptr) {
    option->check([refuse](const std::string& value) {
      const std::string wanted = refuse(value);
      return wanted.empty() ? "" : fmt::format("got {}, want {}", value, wanted);
    });
  }
  ignored_.push_back({option, instead});
}

constexpr const char* kWithoutEffect = "accepted, without effect: ";

void CommandLine::AddIgnored(const std::string& name, const std::string& instead, Refuse refuse) {
  FinishIgnored(AddUnread(name, kWithoutEffect + instead), instead, refuse);
}

void CommandLine::AddIgnoredBool(const std::string& name, const std::string& instead,
                                 Refuse refuse) {
  const std::string help = kWithoutEffect + instead;
  FinishIgnored(app_.add_flag(fmt::format("--{0},!--no{0}", name), help)->group(group_), instead,
                refuse);
}

void CommandLine::AddSpelling(const std::string& name, const std::string& flag,
                              const std::string& value, const std::string& allowed) {
  AddUnread(name, fmt::format("as --{}={}", flag, value));
  spellings_.push_back({name, flag, value, allowed});
}

const CommandLine::Spelling* CommandLine::FindSpelling(const std::string& name) const {
  const auto found = std::find_if(spellings_.begin(), spellings_.end(),
                                  [&](const Spelling& s) { return s.name == name; });
  return found == spellings_.end() ? nullptr : &*found;
}

std::string CommandLine::Spelling::Translate(const std::string& given) const {
  const auto choices = allowed.empty() ? std::vector{given} : CLI::detail::split(allowed, ',');
  if (std::find(choices.begin(), choices.end(), given) == choices.end()) {
    throw UsageError(
        fmt::format("[flags] --{}: no such choice: got {}, want one of {}", name, given, allowed));
  }
  const size_t hole = value.find("{}");
  return hole == std::string::npos ? value : value.substr(0, hole) + given + value.substr(hole + 2);
}

void CommandLine::SetDefault(const std::string& name, const std::string& value) {
  CLI::Option* option = app_.get_option_no_throw("--" + name);
  if (option == nullptr || option->count() > 0) return;
  option->trigger_on_parse(false);  // CLI11 would take the callback of a list for done
  option->run_callback_for_default()->default_val(value);
}

void CommandLine::LogIgnored() const {
  for (const Ignored& ignored : ignored_) {
    if (ignored.option->count() > 0)
      LogInfo("flags", "{}: {}", ignored.option->get_name(), ignored.instead);
  }
}

bool CommandLine::Has(const std::string& name) const {
  return app_.get_option_no_throw("--" + name) != nullptr;
}

bool CommandLine::Given(const std::string& name) const { return app_.count("--" + name) > 0; }

GivenFlags CommandLine::Given() const {
  GivenFlags given;
  for (const CLI::Option* option : app_.get_options()) {
    if (option->count() == 0 || option->get_lnames().empty()) continue;
    const std::vector<std::string>& values = option->results();
    given[option->get_lnames().front()] =
        IsList(*option) ? CLI::detail::join(values) : values.back();
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
  throw UsageError(fmt::format("[flags] --{}: {} has no such flag; {}", flag, app_.get_name(),
                               nearest.empty() ? "see --help" : "did you mean --" + nearest + "?"));
}

void CommandLine::ReadAsArgparse(std::string_view names) {
  for (const std::string& name : CLI::detail::split(std::string(names), ' ')) {
    for (const std::string& form : {name, "no" + name}) {
      if (Has(form)) argparse_flags_.push_back(form);
    }
  }
}

std::string CommandLine::Whole(const std::string& flag) const {
  if (Has(flag)) return flag;
  std::string fitting, all;
  for (const std::string& name : argparse_flags_) {
    if (!name.starts_with(flag)) continue;
    all += (all.empty() ? "--" : ", --") + name;
    fitting = name;
  }
  if (all.size() > fitting.size() + 2) {
    throw UsageError(
        fmt::format("[flags] --{}: may stand for several: {}; write it out", flag, all));
  }
  return fitting.empty() ? flag : fitting;
}

bool CommandLine::IsValueOfBool(const std::string& flag, const std::string& word) const {
  constexpr std::string_view kValues[] = {"true", "t", "1", "false", "f", "0"};
  const bool has_positionals = std::ranges::any_of(
      app_.get_options(), [](const CLI::Option* option) { return option->get_positional(); });
  const bool may_be =
      !has_positionals || std::ranges::find(argparse_flags_, flag) != argparse_flags_.end();
  return may_be && IsBool(*app_.get_option("--" + flag)) &&
         std::find(std::begin(kValues), std::end(kValues), CLI::detail::to_lower(word)) !=
             std::end(kValues);
}

// Known flags under their names here; other words as they are.
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
    std::string flag = Whole(Underscored(argument.substr(dashes, equals - dashes)));
    std::string value = argument.substr(equals);
    if (const Spelling* spelling = FindSpelling(flag)) {
      if (value.empty() && ++i == arguments.size())
        throw UsageError(fmt::format("[flags] --{}: its value is missing", flag));
      flag = spelling->flag;
      value = "=" + spelling->Translate(value.empty() ? arguments[i] : value.substr(1));
    }
    CheckKnown(flag);
    if (value.empty() && i + 1 < arguments.size() && IsValueOfBool(flag, arguments[i + 1]))
      value = "=" + arguments[++i];
    if (value == "=" && IsBool(*app_.get_option("--" + flag)))
      throw UsageError(fmt::format("[flags] --{}: got nothing, want true or false", flag));
    if (value == "=") {  // CLI11 would take the next word for its value
      words.push_back("--" + flag);
      words.emplace_back();
    } else {
      words.push_back(fmt::format("--{}{}", flag, value));
    }
  }
  return words;
}

// CLI11 leaves out options without a group.
void CommandLine::PrintHelp(bool full) {
  if (!full) {
    for (const Ignored& ignored : ignored_) ignored.option->group("");
    for (const Spelling& spelling : spellings_) app_.get_option("--" + spelling.name)->group("");
  }
  fmt::print("{}", app_.help());
}

bool CommandLine::Parse(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = Normalize(arguments);
  const bool full =
      std::find(words.begin(), words.end(), std::string("--") + kFullHelp) != words.end();
  std::reverse(words.begin(), words.end());  // as CLI11 wants them
  try {
    if (full) throw CLI::CallForHelp();
    app_.parse(words);
  } catch (const CLI::CallForHelp&) {
    if (before_help_) before_help_();
    PrintHelp(full);
    return false;
  } catch (const CLI::ParseError& error) {
    throw UsageError(
        fmt::format("[flags] {}: {}; see --help", app_.get_name(), Explain(app_, error.what())));
  }
  return true;
}

}  // namespace carole::commands
