// The program: prepares the process, finds the command, runs it, and reports how it ended with the
// exit code and the last line on standard error.
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
#include "launch/job/end_markers.h"
#include "launch/machine/cores.h"
#include "src/commands/cli/command_line.h"
#include "src/commands/cli/commands.h"
#include "src/commands/cli/flag_files.h"
#include "src/commands/cli/flag_names.h"
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

// Prints a line for each command whose name begins with `prefix`.
void PrintCommands(std::string_view prefix) {
  for (const Command& command : kCommands) {
    if (command.name.starts_with(prefix)) fmt::print("  {:<20}{}\n", command.name, command.summary);
  }
}

void PrintHelp() {
  fmt::print(
      "carole trains image classifiers on many ranks, which sum their gradients.\n\n"
      "Usage: carole COMMAND [FLAGS]\n\nCommands:\n");
  PrintCommands("");
  fmt::print(
      "\n`carole help COMMAND` shows the most important flags of a command, `carole COMMAND "
      "--helpfull`\nall of them. `carole --version` shows the versions of the program and its "
      "libraries.\n");
}

// Whether `word` is the first word of commands of two words, such as "dataset".
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
                  nearest.empty() ? "see carole help" : "did you mean " + nearest + "?"));
}

// Runs the command that the first one or two words name.
int Run(const Arguments& words) {
  if (words.empty()) {
    PrintHelp();
    return static_cast<int>(carole::ExitCode::kUsage);
  }
  if (words[0] == "help" && words.size() > 1) {  // help COMMAND is COMMAND --help
    Arguments command(words.begin() + 1, words.end());
    command.emplace_back("--help");
    return Run(command);
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

// Opens /dev/null in place of standard streams that the caller has closed. Otherwise the first
// files that the program opens would get their numbers, and lines meant for the streams.
void OpenClosedStreams() {
  int file = 0;
  while (file >= 0 && file <= STDERR_FILENO) file = open("/dev/null", O_RDWR);
  if (file > STDERR_FILENO) close(file);
}

// Restarts the program with GOMP_SPINCOUNT=2000, so that waiting OpenMP threads sleep after some
// microseconds. By default libgomp's threads spin for milliseconds. If other programs use the same
// cores, they lose that time, and a training step loses it many times over. libgomp reads the
// variable before main(), so the program restarts itself. If that fails, the program continues
// unchanged.
void LimitOpenMpSpinning(char** argv) {
  constexpr std::string_view kComputing[] = {"train", "eval", "predict", "bench", "drill"};
  if (argv[0] == nullptr || argv[1] == nullptr ||
      std::find(std::begin(kComputing), std::end(kComputing), argv[1]) == std::end(kComputing) ||
      std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr)
    return;
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);  // keeps its name
  if (!error && setenv("GOMP_SPINCOUNT", "2000", 1) == 0) execv(program.c_str(), argv);
}

// Lets errors that come before the communicator exists name their rank. RankContext sets the rank
// again later, and reports an environment that makes no sense.
void SetLogRankFromEnvironment() {
  try {
    if (const auto placement = carole::launch::FindRankPlacement(std::getenv))
      carole::SetLogRank(placement->rank, placement->size);
  } catch (const carole::ConfigError&) {
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    OpenClosedStreams();
    carole::launch::UndoOpenMpBinding();  // else the restarted program would have one core
    LimitOpenMpSpinning(argv);
    SetLogRankFromEnvironment();
    carole::SetLogRewrite(carole::commands::WithFlags);
    std::signal(SIGCHLD, SIG_DFL);  // while it is ignored, waitpid() does not work
    std::signal(SIGXFSZ, SIG_IGN);  // writing beyond the file size limit then fails with an error
    const int code = Run(carole::commands::ReadFlagFiles({argv + 1, argv + argc}));
    carole::FlushStdout();
    carole::commands::ReportExit(code);
    if (code == 0) carole::launch::WriteRanksEndMarker(std::getenv);
    return code;
  } catch (const std::exception&) {
    return carole::commands::ReportError(std::current_exception());
  }
}
