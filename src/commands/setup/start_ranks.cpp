#include "src/commands/setup/start_ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "launch/cluster/environment.h"
#include "launch/cluster/tf_config.h"
#include "launch/job/mpirun.h"
#include "launch/job/process.h"
#include "launch/machine/cores.h"
#include "src/commands/cli/launch_arguments.h"
#include "src/core/error.h"
#include "src/core/log.h"
#include "src/core/text/quote_for_shell.h"

namespace carole::commands {

void StartRanks(int ranks, const Arguments& arguments) {
  const auto placement = launch::FindRankPlacement(std::getenv);
  if (placement) launch::RequireRanks(*placement, ranks);
  if (placement || ranks <= 1) return;
  constexpr int kMaxRanks = 1024;  // more would exhaust the processes and the memory of the machine
  if (ranks > kMaxRanks) {
    throw UsageError({.tag = "launch",
                      .option = "ranks",
                      .problem = "too many for one machine",
                      .got = ranks,
                      .want = fmt::format("at most {}", kMaxRanks)});
  }
  launch::RequireUsableLauncher(std::getenv);
  if (const char* tf_config = std::getenv("TF_CONFIG"))
    launch::RequireWholeJob(launch::ParseTfConfig(tf_config, 0), 1);
  const std::vector<std::string> argv =
      launch::MpirunCommand({.mpirun = launch::FindProgram("mpirun", "openmpi-bin"),
                             .ranks = ranks,
                             .is_root = geteuid() == 0,
                             .binding = launch::ChooseBinding(ranks, launch::FindBoundCores().count,
                                                              launch::CountCores()),
                             .command = SelfCommand("train", arguments)});
  std::string text = "mpirun";
  for (size_t i = 1; i < argv.size(); ++i) text += " " + QuoteForShell(argv[i]);
  LogInfo("launch", "starts {} ranks: {}", ranks, text);
  launch::ReplaceProcess(argv);
}

}  // namespace carole::commands
