#include "src/commands/drill/drill_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "src/commands/drill/injection.h"
#include "src/core/error.h"
#include "src/core/text/join_names.h"
#include "src/core/text/nearest_name.h"

namespace carole::commands {
namespace {

constexpr int kGone = 69, kDisk = 74, kSaved = 75, kDiverged = 78;
constexpr int kSlowSteps = 110;              // stragglers are logged after 100 steps and 10 s
constexpr const char* kFreezeTimeout = "8";  // seconds
constexpr const char* kSurvivorTimeout = "60";

using Points = std::vector<std::string>;

// How a training with a fault of a group must end.
enum class Outcome {
  kDies,
  kFreezes,
  kReturns,
  kStops,
  kSlow,
  kNanStops,
  kNanSkips,
  kWeight,
  kGradient,
  kDiskFull,
  kHostLost
};

struct FaultRow {
  const char* name;
  const char* kind;  // of Injection
  Outcome outcome;
  int code = 0;  // the exit code of the launcher, if it sees the rank end
  std::vector<const char*> points;
};

const std::vector<FaultRow>& Rows() {
  static const std::vector<FaultRow> rows = {
      {"kill",
       "kill",
       Outcome::kDies,
       137,
       {"start", "input", "forward", "backward", "bucket", "optimizer", "evaluation", "saving",
        "barrier"}},
      {"segv", "segv", Outcome::kDies, 139, {"backward"}},
      {"abort", "abort", Outcome::kDies, 134, {"forward"}},
      {"exit", "exit", Outcome::kDies, kExitFaultCode, {"input"}},
      {"quit", "quit", Outcome::kDies, 1, {"optimizer"}},
      {"freeze", "freeze", Outcome::kFreezes, kGone, {"bucket", "saving"}},
      {"freeze_and_return", "freeze_and_return", Outcome::kReturns, 0, {"backward", "saving"}},
      {"sigterm", "sigterm", Outcome::kStops, kSaved, {"bucket", "evaluation"}},
      {"sigint", "sigint", Outcome::kStops, kSaved, {"saving"}},
      {"sigusr1", "sigusr1", Outcome::kStops, kSaved, {"input"}},
      {"sigxcpu", "sigxcpu", Outcome::kStops, kSaved, {"optimizer"}},
      {"slow_input", "slow_input", Outcome::kSlow, 0, {"input"}},
      {"slow_compute", "slow_compute", Outcome::kSlow, 0, {"forward"}},
      {"slow_network", "slow_network", Outcome::kSlow, 0, {"reduction"}},
      {"nan_stop", "nan", Outcome::kNanStops, kDiverged, {"backward"}},
      {"nan_skip", "nan", Outcome::kNanSkips, 0, {"backward"}},
      {"flip_weight", "flip_weight", Outcome::kWeight, kGone, {"backward"}},
      {"flip_gradient", "flip_gradient", Outcome::kGradient, kGone, {"backward"}},
      {"broken_core", "broken_core", Outcome::kGradient, kGone, {"backward"}},
      {"full_disk", "full_disk", Outcome::kDiskFull, kDisk, {"saving"}},
      {"lost_host", "lost_host", Outcome::kHostLost, kGone, {"backward", "saving"}},
  };
  return rows;
}

// Whether the fault can happen at this point.
bool Fits(const FaultRow& row, const std::string& point) {
  if (HasOwnPoint(row.kind)) return point == row.points[0];
  switch (row.outcome) {
    case Outcome::kDiskFull:  // only a save shows it
      return point == "saving";
    case Outcome::kDies:
      // A process that ends with 0 before it joins the job is no failure for mpirun.
      return point != "start" || row.name != std::string_view("quit");
    case Outcome::kFreezes:  // the ranks have 5 minutes to start
    case Outcome::kStops:    // before the start, signals end the program
      return point != "start";
    default:
      return true;
  }
}

std::string RankText(int rank) { return fmt::format("rank {} (", rank); }

// Sets what must be seen if a rank ends.
void ExpectDeath(const FaultRow& row, const DrillJob& job, DrillCase& drill) {
  drill.codes = {row.code, kGone};
  drill.flags.push_back(fmt::format("--collective_timeout={}", kSurvivorTimeout));
  drill.expected = fmt::format("exit {} or {}", row.code, kGone);
  if (drill.injection.point == "start") return;
  // Only a rank of the same host sees that a process has ended. Before a rank of another host
  // reaches its deadline, mpirun has ended the job.
  if (std::ranges::count(job.lone_ranks, drill.injection.rank) > 0) return;
  drill.words = {RankText(drill.injection.rank), "is gone"};
  drill.expected += ", the log names the rank";
}

void ExpectGradientFault(const DrillJob& job, DrillCase& drill) {
  if (!job.has_cross_check) {
    drill.codes = {0};
    drill.has_equal_weights = false;
    drill.expected = "exit 0; all ranks get the same wrong sum, so nothing notices it";
    return;
  }
  drill.flags.emplace_back("--cross_check_every=1");
  drill.words = {RankText(drill.injection.rank)};
  const bool repeats = drill.injection.kind == "broken_core";
  drill.codes = {kGone};
  if (!repeats) drill.codes.push_back(0);
  drill.expected =
      repeats ? "exit 69, the log names the rank" : "repaired or exit 69, the log names the rank";
}

void ExpectStop(const FaultRow& row, DrillCase& drill) {
  drill.codes = {row.code};
  drill.words = {"saving at step"};
  drill.expected = fmt::format("exit {} after a save", row.code);
}

void ExpectWeightFault(const DrillJob& job, DrillCase& drill) {
  constexpr int kFewestForRepair = 3;  // ranks
  drill.flags.emplace_back("--audit_every_n_steps=1");
  drill.words = {RankText(drill.injection.rank)};
  drill.codes = {kGone};
  if (job.ranks >= kFewestForRepair) drill.codes.push_back(0);
  drill.expected = job.ranks >= kFewestForRepair ? "repaired or exit 69, the log names the rank"
                                                 : "exit 69, the log names the ranks";
}

void ExpectSlowRank(DrillCase& drill) {
  drill.steps = kSlowSteps;
  drill.codes = {0};
  drill.flags = {"--eval_every=0"};
  drill.words = {RankText(drill.injection.rank), "slows down the other ranks"};
  if (drill.fault == "slow_input") drill.words.emplace_back("its input takes");
  drill.expected = "exit 0, the log names the rank";
}

void Expect(const FaultRow& row, const DrillJob& job, DrillCase& drill) {
  switch (row.outcome) {
    case Outcome::kDies:
      return ExpectDeath(row, job, drill);
    case Outcome::kFreezes:
      drill.codes = {row.code};
      drill.flags = {fmt::format("--collective_timeout={}", kFreezeTimeout)};
      drill.words = {RankText(drill.injection.rank), "deadline"};
      drill.expected = "exit 69 at the deadline, the log names the rank";
      return;
    case Outcome::kReturns:
      drill.codes = {0};
      drill.expected = "exit 0";
      return;
    case Outcome::kStops:
      return ExpectStop(row, drill);
    case Outcome::kSlow:
      return ExpectSlowRank(drill);
    case Outcome::kNanStops:
      drill.codes = {row.code};
      drill.words = {"not finite"};
      drill.expected = "exit 78, the log says what is not finite";
      return;
    case Outcome::kNanSkips:
      drill.codes = {0};
      drill.flags = {"--on_nan=skip"};
      drill.words = {"all ranks skip this step"};
      drill.has_equal_weights = false;
      drill.expected = "exit 0, the step is skipped";
      return;
    case Outcome::kWeight:
      return ExpectWeightFault(job, drill);
    case Outcome::kGradient:
      return ExpectGradientFault(job, drill);
    case Outcome::kDiskFull:
      drill.codes = {row.code};
      drill.words = {"model.ckpt-"};
      drill.expected = "exit 74, the log names the file";
      return;
    case Outcome::kHostLost:  // the codes of launchers for a lost daemon, and of its rank
      drill.codes = {kGone, 137, 205, 213, 255};
      drill.expected = "exit 69, 137, 205, 213 or 255";
      return;
  }
}

DrillCase MakeCase(const FaultRow& row, const std::string& point, int rank, const DrillJob& job) {
  DrillCase drill{.fault = row.name,
                  .injection = {.rank = rank,
                                .step = point == "start"        ? 0
                                        : point == "evaluation" ? 1
                                                                : 2 * EvaluationInterval(job.steps),
                                .point = point,
                                .kind = row.kind},
                  .steps = job.steps};
  Expect(row, job, drill);
  if (drill.has_equal_weights) drill.expected += "; at the end the undisturbed run's weights";
  return drill;
}

// Adds the cases of one fault.
void AddCases(const FaultRow& row, const DrillJob& job, const Points& phases,
              std::vector<DrillCase>& cases) {
  const bool is_far = row.outcome == Outcome::kHostLost;
  if (is_far && job.far_rank < 0) return;
  const int rank = row.outcome == Outcome::kDiskFull ? 0 : is_far ? job.far_rank : job.ranks - 1;
  Points points(row.points.begin(), row.points.end());
  if (!phases.empty()) {
    points.clear();
    std::ranges::copy_if(phases, std::back_inserter(points),
                         [&](const std::string& point) { return Fits(row, point); });
  }
  for (const std::string& point : points) {
    cases.push_back(MakeCase(row, point, rank, job));
    // Rank 0 writes the checkpoints, so its death is another case.
    if (row.name == std::string_view("kill") && point == "saving")
      cases.push_back(MakeCase(row, point, 0, job));
  }
}

void RequireKnown(const char* option, const std::string& name,
                  const std::vector<std::string>& known) {
  if (std::ranges::find(known, name) != known.end()) return;
  const std::string nearest = NearestName(name, known);
  throw UsageError({.tag = "drill",
                    .option = option,
                    .problem = "unknown name",
                    .got = name,
                    .want = "names of " + JoinTexts(known),
                    .hint = nearest.empty() ? "" : "did you mean " + nearest + "?"});
}

}  // namespace

std::vector<std::string> FaultNames() {
  std::vector<std::string> names;
  for (const FaultRow& row : Rows()) names.emplace_back(row.name);
  return names;
}

std::vector<DrillCase> MakeDrillCases(const DrillJob& job, const std::vector<std::string>& faults,
                                      const std::vector<std::string>& phases) {
  const Points every(std::begin(kPoints), std::end(kPoints));
  for (const std::string& name : faults) RequireKnown("faults", name, FaultNames());
  const bool has_all = phases == Points{"all"};
  if (!has_all) {
    for (const std::string& name : phases) RequireKnown("phases", name, every);
  }
  std::vector<DrillCase> cases;
  for (const FaultRow& row : Rows()) {
    const bool is_chosen = faults.empty() || std::ranges::find(faults, row.name) != faults.end();
    if (is_chosen) AddCases(row, job, has_all ? every : phases, cases);
  }
  if (cases.empty()) {
    throw UsageError({.tag = "drill",
                      .option = "faults",
                      .problem = "no case is left",
                      .got = JoinTexts(faults) + (phases.empty() ? "" : " in " + JoinTexts(phases)),
                      .want = phases.empty()
                                  ? "faults that can happen on these hosts"
                                  : "faults that can happen in these phases and on these hosts",
                      .hint = "lost_host needs ranks on 2 hosts"});
  }
  return cases;
}

}  // namespace carole::commands
