// The program: finds the command, runs it, and says with exit code and last line how it ended.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "launch/cluster/environment.h"
#include "launch/job/job_end.h"
#include "launch/machine/cores.h"
#include "src/commands/cli/command_line.h"
#include "src/commands/cli/commands.h"
#include "src/commands/cli/flag_files.h"
#include "src/commands/cli/version.h"
#include "src/commands/setup/rank_context.h"
#include "src/core/error.h"
#include "src/core/files/disk.h"
#include "src/core/log.h"
#include "src/core/text/nearest_name.h"

namespace {

using carole::commands::Arguments;
using carole::commands::Command;
using carole::commands::kCommands;

// The commands whose names begin so.
void PrintCommands(std::string_view start) {
  for (const Command& command : kCommands) {
    if (command.name.starts_with(start)) fmt::print("  {:<20}{}\n", command.name, command.help);
  }
}

void PrintHelp() {
  fmt::print(
      "carole trains image classifiers on many ranks that share their gradients in a ring.\n\n"
      "Usage: carole COMMAND [FLAGS]\n\nCommands:\n");
  PrintCommands("");
  fmt::print(
      "\n`carole COMMAND --help` lists a command's flags; `carole --version` says what was built "
      "in.\n");
}

// "dataset" alone, or "dataset --help".
bool IsGroup(const std::string& word) {
  return std::any_of(std::begin(kCommands), std::end(kCommands),
                     [&](const Command& command) { return command.name.starts_with(word + " "); });
}

[[noreturn]] void FailUnknown(const std::string& words) {
  std::vector<std::string> names;
  for (const Command& command : kCommands) names.emplace_back(command.name);
  const std::string nearest = carole::NearestName(words, names);
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
  if (two_words == words[0] && IsGroup(two_words)) {
    PrintCommands(two_words + " ");
    return words.size() > 1 ? 0 : static_cast<int>(carole::ExitCode::kUsage);
  }
  FailUnknown(two_words);
}

// A file would get the number of a stream that the caller has closed, and lines meant for that.
void FillClosedStreams() {
  int file = 0;
  while (file >= 0 && file <= STDERR_FILENO) file = open("/dev/null", O_RDWR);
  if (file > STDERR_FILENO) close(file);
}

// Threads of libgomp that wait for others spin for milliseconds, which whoever else uses the cores
// pays for, and a step then many times over; these sleep after some microseconds. It reads that
// before main(), so the program begins anew; where that cannot be it runs as it is.
void SpinShortly(char** argv) {
  constexpr std::string_view kComputing[] = {"train", "eval", "predict", "bench"};
  if (argv[0] == nullptr || argv[1] == nullptr ||
      std::find(std::begin(kComputing), std::end(kComputing), argv[1]) == std::end(kComputing) ||
      std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr)
    return;
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);  // keeps its name
  if (!error && setenv("GOMP_SPINCOUNT", "2000", 1) == 0) execv(program.c_str(), argv);
}

// For errors before there is a job, which says it itself, or why it cannot.
void TellRank() {
  try {
    if (const auto place = carole::launch::FindRankPlacement(std::getenv))
      carole::SetLogRank(place->rank, place->size);
  } catch (const carole::ConfigError&) {
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    FillClosedStreams();
    carole::launch::LeaveOpenMpPlace();  // else a program that begins anew has one core
    SpinShortly(argv);
    TellRank();
    std::signal(SIGCHLD, SIG_DFL);  // whoever ignores it cannot wait for its children
    std::signal(SIGXFSZ, SIG_IGN);  // a file over the limit is an error of writing, not an end
    const int code = Run(carole::commands::ReadFlagFiles({argv + 1, argv + argc}));
    carole::FlushOutput();
    carole::commands::ReportExit(code);
    if (code == 0) carole::launch::NoteRanksEnd(std::getenv);
    return code;
  } catch (const std::exception&) {
    return carole::commands::ReportError(std::current_exception());
  }
}
