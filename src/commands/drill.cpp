// carole drill: injects faults into short trainings on the user's machines and checks that each
// ends as promised.
//
// The ranks of the job that runs the drill tell rank 0 their hosts, write the data set, and end.
// Rank 0 goes on alone. It starts a new mpirun on the same hosts for each case, in which the rank
// of the fault runs `carole drill --inject=FAULT -- train FLAGS`.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>

#include "collectives/communicator.h"
#include "launch/cluster/environment.h"
#include "src/commands/cli/command_line.h"
#include "src/commands/cli/commands.h"
#include "src/commands/drill/drill_cases.h"
#include "src/commands/drill/drill_page.h"
#include "src/commands/drill/drill_runner.h"
#include "src/commands/drill/injection.h"
#include "src/commands/drill/job_environment.h"
#include "src/commands/setup/rank_context.h"
#include "src/core/error.h"
#include "src/core/files/disk.h"
#include "src/core/host_name.h"
#include "src/core/text/join_names.h"

namespace carole::commands {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kInject = "--inject=";
constexpr int kMaxHostName = 256;  // bytes

struct DrillFlags {
  int ranks = 2;
  std::vector<std::string> faults, phases;
  int64_t steps = 8;
  double limit_seconds = 0;
  std::string work_dir = "carole-drill";
  bool list = false;
};

// Runs `train` or `eval` with a fault: the form of this command that the drill itself starts.
int RunWithFault(const Arguments& arguments) {
  const Injection injection = ParseInjection(arguments[0].substr(kInject.size()));
  const std::string command = arguments.size() > 2 && arguments[1] == "--" ? arguments[2] : "";
  if (command != "train" && command != "eval")
    throw UsageError({.tag = "drill",
                      .option = "inject",
                      .problem = "no command",
                      .got = command.empty() ? "none" : command,
                      .want = "-- train or -- eval after it"});
  const auto placement = launch::FindRankPlacement(std::getenv);
  Inject(injection, placement ? placement->rank : 0);
  return (command == "train" ? Train : Eval)({arguments.begin() + 3, arguments.end()});
}

// Makes every host's copy of the data set, and returns the host of each rank. Collective. The ranks
// of the drill's own job end after it.
std::vector<std::string> GatherHosts(const DrillFlags& flags, bool& is_chief) {
  const RankContext context(MachineConfig{});
  is_chief = context.is_chief();
  if (context.communicator().local_rank() == 0)
    WriteDrillData(flags.work_dir + "/data", context.size());
  std::string mine = HostName();
  mine.resize(kMaxHostName);
  const auto all =
      collectives::AllGatherValues<char>(context.communicator(), mine, {.what = "host names"});
  std::vector<std::string> names;
  for (int rank = 0; rank < context.size(); ++rank)
    names.emplace_back(&all[static_cast<size_t>(rank) * kMaxHostName]);
  return names;
}

std::string DescribeJob(const std::vector<DrillHost>& hosts) {
  int ranks = 0;
  std::vector<std::string> names;
  for (const DrillHost& host : hosts) {
    ranks += host.ranks;
    names.push_back(fmt::format("{} ({})", host.name, host.ranks));
  }
  return fmt::format("{} ranks on {}", ranks, JoinFirst(names, 8));
}

DrillJob DescribeForCases(const DrillFlags& flags, const std::vector<DrillHost>& hosts) {
  DrillJob job{.steps = flags.steps,
               .has_cross_check = DrillRunner::TrainHasFlag("cross_check_every")};
  for (const DrillHost& host : hosts) {
    if (host.ranks == 1) job.lone_ranks.push_back(job.ranks);
    job.ranks += host.ranks;
  }
  if (hosts.size() > 1) job.far_rank = hosts[0].ranks;
  return job;
}

void PrintList(const std::vector<DrillCase>& cases) {
  fmt::print("{:<18} {:<11} {:>4}  {}\n", "fault", "phase", "rank", "expected");
  for (const DrillCase& drill : cases)
    fmt::print("{:<18} {:<11} {:>4}  {}\n", drill.fault, drill.injection.point,
               drill.injection.rank, drill.expected);
}

// Runs the trainings without a fault that the cases need, and prints the limits that follow.
void PrintLimits(const std::vector<DrillCase>& cases, DrillRunner& runner) {
  std::set<int64_t> all_steps;
  for (const DrillCase& drill : cases) all_steps.insert(drill.steps);
  for (const int64_t steps : all_steps) {
    fmt::print("training without a fault ...\n");
    std::fflush(stdout);
    const UndisturbedRun& run = runner.RunUndisturbed(steps);
    fmt::print("{} steps without a fault take {:.1f} s; with a fault they may take {:.1f} s\n",
               steps, run.seconds, run.limit_seconds);
  }
}

// Runs all cases, prints the table and writes the page. Returns the exit code.
int RunCases(const DrillFlags& flags, const std::vector<DrillHost>& hosts,
             const std::vector<DrillCase>& cases) {
  DrillSetup setup{.work_dir = flags.work_dir, .limit_seconds = flags.limit_seconds};
  for (const DrillHost& host : hosts) {
    setup.ranks += host.ranks;
    setup.ranks_per_host = std::max(setup.ranks_per_host, host.ranks);
  }
  if (hosts.size() > 1) {
    setup.hostfile = flags.work_dir + "/hosts";
    WriteWholeFile(setup.hostfile, DrillHostfile(hosts));
  }
  DrillRunner runner(setup);
  const std::string job = DescribeJob(hosts);
  fmt::print("{}\n", job);
  PrintLimits(cases, runner);
  fmt::print("{}", DrillTableHead());
  std::vector<DrillResult> results;
  const std::string page = flags.work_dir + "/drill.html";
  for (const DrillCase& drill : cases) {
    std::fflush(stdout);
    results.push_back(runner.Run(drill));
    fmt::print("{}", DrillTableRow(results.back()));
    WriteWholeFile(page, MakeDrillPage(job, results));
  }
  const auto failed = std::ranges::count_if(
      results, [](const DrillResult& result) { return !result.problems.empty(); });
  fmt::print("{} cases, {} failed; see {}\n", results.size(), failed, page);
  return failed == 0 ? 0 : 1;
}

void AddFlags(CommandLine& line, DrillFlags& flags) {
  line.Group("Drill");
  line.Add("ranks", flags.ranks, "Ranks on this machine, without mpirun.", HelpLevel::kBasic)
      .Between(2, 1024);
  line.Add("faults", flags.faults,
           "Faults to inject; empty: all. Any of: " + JoinTexts(FaultNames()) + ".",
           HelpLevel::kBasic);
  line.Add("phases", flags.phases,
           "Phases in which they happen; empty: those that matter most for each fault; all: every "
           "phase. Any of: " +
               JoinTexts(kPoints) + ".",
           HelpLevel::kBasic);
  line.AddPath("work_dir", flags.work_dir,
               "Folder of the data set, the trainings and the page drill.html.", HelpLevel::kBasic);
  line.Add("list", flags.list, "Print the cases and run none.", HelpLevel::kBasic);
  line.Add("steps", flags.steps, "Steps of each training.").Between(4, 10000);
  line.AddNonNegative("case_timeout", flags.limit_seconds,
                      "Seconds after which a training with a fault counts as hanging; 0: ten times "
                      "the duration of the training without a fault, plus two minutes.")
      .AllowTimeUnits();
}

}  // namespace

int Drill(const Arguments& arguments) {
  if (!arguments.empty() && arguments[0].starts_with(kInject)) return RunWithFault(arguments);
  DrillFlags flags;
  CommandLine line("carole drill",
                   "Injects faults into short trainings and checks that each ends as promised. "
                   "Start it in the same way as the training. It prints a table and writes a page. "
                   "The exit code is 1 if a case fails.",
                   {"mpirun -np 4 carole drill --work_dir=DRILL",
                    "carole drill --ranks=2 --faults=kill,freeze --phases=saving"});
  AddFlags(line, flags);
  if (!line.Parse(arguments)) return 0;
  flags.work_dir = fs::absolute(flags.work_dir).string();
  const auto placement = launch::FindRankPlacement(std::getenv);
  std::vector<std::string> names(flags.ranks, HostName());
  bool is_chief = true;
  if (placement && flags.list) is_chief = placement->rank == 0;
  if (placement && !flags.list) names = GatherHosts(flags, is_chief);
  if (!is_chief) return 0;
  LeaveJob();
  const std::vector<DrillHost> hosts = CountRanks(names);
  if (names.size() < 2)
    throw UsageError("[drill] ranks: got 1, want at least 2; start it with mpirun -np 2");
  const std::vector<DrillCase> cases =
      MakeDrillCases(DescribeForCases(flags, hosts), flags.faults, flags.phases);
  if (flags.list) return PrintList(cases), 0;
  if (!placement) WriteDrillData(flags.work_dir + "/data", flags.ranks);
  return RunCases(flags, hosts, cases);
}

}  // namespace carole::commands
