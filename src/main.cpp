// The program: finds the command, runs it, and says with exit code and last line how it ended.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "src/commands/commands.h"
#include "src/commands/job.h"
#include "src/commands/version.h"
#include "src/core/error.h"

namespace {

using carole::commands::Arguments;
using carole::commands::Command;
using carole::commands::kCommands;

void PrintHelp() {
  fmt::print(
      "carole trains image classifiers on many ranks that share their gradients in a ring.\n\n"
      "Usage: carole COMMAND [FLAGS]\n\nCommands:\n");
  for (const Command& command : kCommands) fmt::print("  {:<20}{}\n", command.name, command.help);
  fmt::print(
      "\n`carole COMMAND --help` lists a command's flags; `carole --version` says what was built "
      "in.\n");
}

[[noreturn]] void FailUnknown(const std::string& words) {
  std::vector<std::string> names;
  for (const Command& command : kCommands) names.emplace_back(command.name);
  const std::string nearest = carole::commands::NearestName(words, names);
  throw carole::UsageError(
      fmt::format("[usage] {}: no such command; {}", words,
                  nearest.empty() ? "see carole --help" : "did you mean " + nearest + "?"));
}

int Run(const Arguments& words) {
  if (words.empty()) {
    PrintHelp();
    return static_cast<int>(carole::ExitCode::kUsage);
  }
  if (words[0] == "--help" || words[0] == "-h" || words[0] == "help") return PrintHelp(), 0;
  if (words[0] == "--version") return carole::commands::PrintVersion(), 0;
  const std::string two_words =
      words.size() > 1 && words[1][0] != '-' ? words[0] + " " + words[1] : words[0];
  for (const Command& command : kCommands) {
    if (command.name == words[0]) return command.run({words.begin() + 1, words.end()});
    if (command.name == two_words) return command.run({words.begin() + 2, words.end()});
  }
  FailUnknown(two_words);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int code = Run({argv + 1, argv + argc});
    if (code != 0) carole::commands::ReportExit(code);
    return code;
  } catch (const std::exception&) {
    return carole::commands::ReportError(std::current_exception());
  }
}
