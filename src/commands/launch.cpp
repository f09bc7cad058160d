// carole launch: one command that every container of a TF_CONFIG job runs, whatever its task is.
// It connects the hosts by ssh and starts mpirun on the chief.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <filesystem>

#include "io/checkpoint/checkpoint_folder.h"
#include "launch/cluster/address.h"
#include "launch/job/job.h"
#include "launch/job/mpirun.h"
#include "launch/job/process.h"
#include "src/commands/cli/commands.h"
#include "src/commands/cli/launch_arguments.h"
#include "src/commands/flags/tf_config_flag.h"
#include "src/commands/setup/train_flags.h"
#include "src/core/error.h"
#include "src/core/log.h"

namespace carole::commands {
namespace {

struct LaunchFlags {
  TfConfigFlags cluster;
  launch::JobOptions job;
  double eval_timeout = 7200;  // seconds; twice the longest interval between checkpoints of recipes
};

void AddFlags(CommandLine& line, LaunchFlags& flags) {
  launch::JobOptions& job = flags.job;
  line.Group("Job");
  AddTfConfigFlags(line, flags.cluster);
  line.AddPath("work_dir", job.work_dir,
               "Folder that all hosts share, for the job's ssh key; empty: --work_dir of train.",
               HelpLevel::kBasic);
  line.AddPath("ssh_key", job.ssh_key,
               "Private ssh key that is mounted on all hosts, instead of --work_dir.",
               HelpLevel::kBasic);
  line.AddChoice<bool>(
      "ps", job.ps_waits_for_end, {{"exit", false}, {"idle", true}},
      "What a parameter server task does: exit at once, or idle until the job ends.");
  line.AddPositive("eval_timeout", flags.eval_timeout,
                   "Seconds without a new checkpoint after which an evaluator task ends.");
  line.Group("Timeouts and lost hosts");
  line.AddPositive("start_timeout", job.start_timeout,
                   "Seconds within which all hosts must be ready.", HelpLevel::kBasic);
  line.AddNonNegative("max_restarts", job.max_restarts,
                      "Number of restarts after a host was lost, each from the newest saved state.",
                      HelpLevel::kBasic);
  line.AddPositive("restart_timeout", job.restart_timeout,
                   "Seconds to wait for a lost host before a restart.", HelpLevel::kBasic);
  line.AddNonNegative(
      "min_hosts", job.min_hosts,
      "Number of hosts with which the job starts or continues without the others; 0: "
      "all hosts at the start, one fewer than before after a loss.",
      HelpLevel::kBasic);
  line.AddNonNegative("grace_seconds", job.grace_seconds,
                      "Seconds that ranks have to save after SIGTERM, SIGINT or SIGHUP.",
                      HelpLevel::kBasic);
  line.Group("Network");
  line.Add("network", job.network,
           "Comma list of interfaces or subnets for the job, such as eth1; empty: all.",
           HelpLevel::kBasic);
  line.Add("ports", job.ports,
           "Range FIRST-LAST of the ports that are open between hosts; NCCL uses any port.",
           HelpLevel::kBasic);
}

// The arguments after "--", as `carole train` parses them.
struct Training {
  Arguments words;
  TrainConfig config;
};

// Takes --work_dir and --num_gpus from the training's flags if they are not given for the job.
void InheritTrainFlags(const CommandLine& line, const Training& training, LaunchFlags& flags) {
  // Only a given --work_dir: that of a recipe need not be a folder that the hosts share.
  if (flags.job.work_dir.empty() && training.config.given_flags.count("work_dir") > 0)
    flags.job.work_dir = training.config.given_flags.at("work_dir");
  if (!line.IsGiven("num_gpus")) flags.cluster.num_gpus = training.config.ranks;
}

Arguments EvaluatorArguments(const Training& training, double timeout) {
  Arguments eval =
      EvalArguments(training.config.given_flags, training.config.trainer.train_dir, timeout);
  eval.push_back("--dataset_split_name=" + EvaluationSplit(training.config));
  return eval;
}

bool AsksForEvaluation(const Training& training) {
  const train::TrainerOptions& trainer = training.config.trainer;
  return trainer.eval_every > 0 || trainer.keep_best ||
         training.config.given_flags.count("epochs_per_eval") > 0;
}

// Returns the arguments of the ranks. If several tasks train, evaluation that only a recipe asks
// for is left to an evaluator task, as in the recipe's program: the hosts that train may lack the
// evaluation files.
Arguments RankArguments(const Training& training, const launch::Cluster& cluster) {
  Arguments words = training.words;
  const bool is_alone = std::ranges::count_if(cluster.tasks, launch::IsTrainingTask) == 1;
  if (is_alone || training.config.evaluation.epochs_per_eval == 0 || AsksForEvaluation(training))
    return words;
  if (std::ranges::count(cluster.tasks, launch::Role::kEvaluator, &launch::Task::role) > 0) {
    LogInfo("launch",
            "several tasks train, so only the evaluator task evaluates (--epochs_per_eval=0)");
  } else {
    LogWarning("launch",
               "TF_CONFIG: several tasks train but none is an evaluator, so nothing is evaluated; "
               "add an evaluator task, or give --epochs_per_eval=1");
  }
  words.emplace_back("--epochs_per_eval=0");
  return words;
}

// Returns the command of each rank if another number of them trains than planned. A reproducible
// run keeps its global batch, so that its bits stay the same. Empty: these ranks cannot share it.
Arguments CommandFor(const Training& training, Arguments words, int planned_ranks, int ranks) {
  const TrainConfig& config = training.config;
  if (config.step.reproducible && config.batch.per_host == 0) {
    const int64_t global_batch = config.batch.per_rank * planned_ranks;
    const bool fits = std::has_single_bit(static_cast<unsigned>(ranks)) &&
                      ranks <= config.reproducible_shards && global_batch % ranks == 0;
    if (!fits) return {};
    words.push_back(fmt::format("--batch_size={}", global_batch / ranks));
  }
  return SelfCommand("train", words);
}

void RequireKeyFolder(const launch::JobOptions& job) {
  if (job.work_dir.empty() && job.ssh_key.empty())
    throw ConfigError(
        "[launch] --work_dir, --ssh_key: both are missing: the job needs an ssh key; give a folder "
        "that all hosts share, or a mounted key");
}

void RequirePort(const launch::Task& me) {
  if (me.port == 0)
    throw ConfigError(
        fmt::format("[launch] {} {}: has no port in TF_CONFIG's cluster; list it "
                    "there as \"HOST:PORT\"",
                    launch::RoleName(me.role), me.index));
}

// Warns if the task's address is not one of this machine. The usual cause is that two machines were
// given the same task.
void WarnOfAnotherMachine(const launch::Task& me) {
  if (launch::CanBeThisMachine(me.host)) return;
  LogWarning("launch",
             "{} {}: {} is not an address of this machine; unless its ports are forwarded here, "
             "correct task.index in TF_CONFIG",
             launch::RoleName(me.role), me.index, me.host);
}

// Returns the path of the newest checkpoint of the run; "" if there is none.
std::string NewestCheckpoint(const std::string& train_dir) {
  if (train_dir.empty()) return "";
  try {
    const std::vector<io::CheckpointFile> files = io::ListCheckpoints(train_dir);
    return files.empty() ? "" : files.back().path;
  } catch (const DiskError&) {
    return "";  // the ranks will report it
  }
}

bool AsksForHelp(const Arguments& arguments) {
  return std::ranges::any_of(arguments, [](const std::string& word) {
    return word == "--help" || word == "-h" || word == "--helpfull";
  });
}

launch::Task FindOwnTask(const launch::Cluster& cluster) {
  if (cluster.me.has_value()) return *cluster.me;
  if (cluster.size() == cluster.hosts[0].slots && cluster.tasks.size() == 1)
    return cluster.tasks[0];
  throw ConfigError(
      "[tf_config] task: missing: got none, want the type and index of this process, as the job "
      "has several tasks");
}

int RunTask(const launch::Task& me, const launch::Cluster& cluster, const LaunchFlags& flags,
            const Training& training) {
  const bool is_alone = cluster.tasks.size() == 1 && cluster.size() == 1;
  if (me.role == launch::Role::kEvaluator)
    launch::ReplaceProcess(SelfCommand("eval", EvaluatorArguments(training, flags.eval_timeout)));
  if (me.role == launch::Role::kParameterServer && !flags.job.ps_waits_for_end) {
    LogInfo("launch", "ps {}: carole has no parameter servers; nothing to do", me.index);
    return 0;
  }
  if (is_alone) launch::ReplaceProcess(flags.job.command);
  WarnOfAnotherMachine(me);
  const auto needs_session = [&](const launch::Task& task) {
    return NeedsWorkerSession(task, flags.job);
  };
  if (me.rank != 0 || std::ranges::any_of(cluster.tasks, needs_session))
    RequireKeyFolder(flags.job);
  if (me.rank == 0) return launch::RunChief(cluster, flags.job);
  RequirePort(me);
  return launch::RunWorker(me, flags.job);
}

}  // namespace

int Launch(const Arguments& arguments) {
  LaunchFlags flags;
  CommandLine line("carole launch",
                   "Runs a training on all hosts of a TF_CONFIG job. Run the same command on each "
                   "host.",
                   {"carole launch --work_dir=SHARED -- train --config=run.toml --train_dir=RUN",
                    "carole launch --ssh_key=/keys/id --network=eth1 -- train --config=run.toml"});
  line.SetUsage("carole launch [FLAGS] -- train [FLAGS OF TRAIN]");
  AddFlags(line, flags);
  const Arguments own(arguments.begin(), std::ranges::find(arguments, "--"));
  LaunchArguments split = AsksForHelp(own) ? LaunchArguments{own, {}} : SplitAtDashes(arguments);
  Training training;
  CommandLine train_line("carole train", "IsTrainingTask a net on all hosts of a job.",
                         {"carole launch -- train --config=run.toml"});
  TrainFlags train_flags(train_line, training.config);
  MoveLaunchFlags(
      [&](const std::string& name) { return line.HasFlag(name) && !train_line.HasFlag(name); },
      split);
  training.words = split.train;
  if (!line.Parse(split.launch) || !train_flags.Parse(training.words)) return 0;
  InheritTrainFlags(line, training, flags);
  const launch::Cluster cluster = ReadCluster(line, flags.cluster);
  const launch::Task me = FindOwnTask(cluster);
  const Arguments words = RankArguments(training, cluster);
  flags.job.command = SelfCommand("train", words);
  flags.job.command_for = [&](int ranks) {
    return CommandFor(training, words, cluster.size(), ranks);
  };
  flags.job.train_dir = training.config.trainer.train_dir;
  flags.job.newest_checkpoint = [&flags] { return NewestCheckpoint(flags.job.train_dir); };
  // Throws UsageError now for a bad --network or --ports, before hosts connect.
  launch::MpirunCommand({.network = flags.job.network, .ports = flags.job.ports});
  return RunTask(me, cluster, flags, training);
}

}  // namespace carole::commands
