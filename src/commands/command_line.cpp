#include "src/commands/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "src/core/error.h"
#include "src/core/log.h"
#include "src/core/nearest_name.h"

namespace carole::commands {
namespace {

std::string Underscored(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// "--batch-size=8" -> "--batch_size=8"; values and short flags stay.
std::string Normalized(const std::string& argument) {
  if (!argument.starts_with("--")) return argument;
  const size_t end = std::min(argument.find('='), argument.size());
  return "--" + Underscored(argument.substr(2, end - 2)) + argument.substr(end);
}

// TOML whose names are flags.
class FlagFile : public CLI::ConfigTOML {
 public:
  explicit FlagFile(std::function<void(const std::string&)> check) : check_(std::move(check)) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    std::vector<CLI::ConfigItem> items = CLI::ConfigTOML::from_config(input);
    for (CLI::ConfigItem& item : items) {
      if (!item.parents.empty())
        throw UsageError(fmt::format("[config] {}: flags stand without a section, as NAME = VALUE",
                                     item.fullname()));
      item.name = Underscored(item.name);
      check_(item.name);
    }
    return items;
  }

 private:
  std::function<void(const std::string&)> check_;
};

}  // namespace

CommandLine::CommandLine(const std::string& name, const std::string& description)
    : app_(description, name) {
  app_.get_formatter()->column_width(44);
  app_.option_defaults()->take_last();
  app_.set_config("--config", "", "TOML file of flags, NAME = VALUE");
  app_.config_formatter(
      std::make_shared<FlagFile>([this](const std::string& flag) { CheckKnown(flag); }));
}

std::string CommandLine::WithDashes(const std::string& names) {
  std::string dashed = "--";
  for (char c : names) dashed += c == ',' ? ",--" : std::string(1, c);
  return dashed;
}

CLI::Option* CommandLine::Finish(CLI::Option* option) {
  return option->group(group_)->capture_default_str();
}

CLI::Option* CommandLine::AddBool(const std::string& name, bool& value, const std::string& help) {
  return Finish(app_.add_flag(fmt::format("--{0},!--no{0}", name), value, help));
}

CLI::Option* CommandLine::AddUnread(const std::string& name, const std::string& help,
                                    bool is_bool) {
  if (is_bool) return app_.add_flag(fmt::format("--{0},!--no{0}", name), help)->group(group_);
  return app_.add_option("--" + name, help)->expected(1)->group(group_);
}

void CommandLine::AddIgnored(const std::string& name, const std::string& instead, bool is_bool) {
  ignored_.push_back({AddUnread(name, "accepted, without effect: " + instead, is_bool), instead});
}

void CommandLine::AddUnsupported(const std::string& name, bool is_bool) {
  unsupported_.push_back(AddUnread(name, "not in this version", is_bool));
}

void CommandLine::RefuseUnsupported() const {
  for (const CLI::Option* option : unsupported_) {
    if (option->count() > 0)
      throw UsageError(
          fmt::format("[flags] {}: this version of carole cannot do that; leave the flag out",
                      option->get_name()));
  }
}

void CommandLine::LogIgnored() const {
  for (const Ignored& ignored : ignored_) {
    if (ignored.option->count() > 0)
      LogInfo("flags", "{}: {}", ignored.option->get_name(), ignored.instead);
  }
}

bool CommandLine::Given(const std::string& name) const { return app_.count("--" + name) > 0; }

std::vector<std::string> CommandLine::GivenFlags() const {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app_.get_options()) {
    if (option->count() > 0 && !option->get_lnames().empty())
      flags.push_back(option->get_lnames().front() + "=" + option->results().back());
  }
  return flags;
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

bool CommandLine::Parse(const std::vector<std::string>& arguments) {
  std::vector<std::string> reversed;  // as CLI11 wants them
  for (const std::string& argument : arguments) {
    reversed.push_back(Normalized(argument));
    const std::string& normalized = reversed.back();
    if (normalized.starts_with("--") && normalized.size() > 2)
      CheckKnown(normalized.substr(2, normalized.find('=') - 2));
  }
  std::reverse(reversed.begin(), reversed.end());
  try {
    app_.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    std::cout << app_.help();
    return false;
  } catch (const CLI::ParseError& error) {
    throw UsageError(fmt::format("[flags] {}: {}; see --help", app_.get_name(), error.what()));
  }
  return true;
}

}  // namespace carole::commands
