// carole launch: one command for every container of a TF_CONFIG job, whatever its part.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "launch/cluster/address.h"
#include "launch/job/arguments.h"
#include "launch/job/job.h"
#include "launch/job/mpirun.h"
#include "src/commands/cli/commands.h"
#include "src/commands/cli/recipes.h"
#include "src/commands/flags/tf_config_flag.h"
#include "src/commands/setup/train_flags.h"
#include "src/core/error.h"
#include "src/core/log.h"
#include "src/core/text/parse_number.h"

namespace carole::commands {
namespace {

struct LaunchFlags {
  TfConfigFlags cluster;
  launch::JobOptions job;
  std::string ps = "exit";
  double eval_timeout = 7200;  // twice as long as any recipe takes to save again
};

void AddFlags(CommandLine& line, LaunchFlags& flags) {
  launch::JobOptions& job = flags.job;
  line.Group("Job");
  AddTfConfigFlags(line, flags.cluster);
  line.Add("work_dir", job.work_dir,
           "folder that all machines share, for the job's ssh key; else train's --work_dir");
  line.Add("ssh_key", job.ssh_key, "private key that is mounted on all machines, instead");
  line.Add("ps", flags.ps, "what a parameter server does: exit at once, or idle until the end")
      ->check(CLI::IsMember({"exit", "idle"}));
  line.AddPositive("eval_timeout", flags.eval_timeout,
                   "seconds without a new checkpoint after which an evaluator ends");
  line.Group("Time and loss");
  line.AddPositive("start_timeout", job.start_timeout,
                   "seconds in which all machines have to be there");
  line.AddNonNegative("max_restarts", job.max_restarts, "from the last checkpoint, after a loss");
  line.AddPositive("restart_timeout", job.restart_timeout, "seconds to wait for a lost machine");
  line.AddNonNegative("min_hosts", job.min_hosts,
                      "go on without lost machines while so many are left; 0: all are needed");
  line.AddNonNegative("grace_seconds", job.grace_seconds,
                      "that the ranks have to save after SIGTERM, SIGINT or SIGHUP");
  line.Group("Network");
  line.Add("network", job.network, "interfaces or subnets for the job, \"eth1\"; the default: all");
  line.Add("ports", job.ports,
           "FIRST-LAST, where only these are open between machines; NCCL takes any");
}

[[noreturn]] void Become(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  throw ConfigError(fmt::format("[launch] {}: {}", words[0], std::strerror(errno)));
}

std::vector<std::string> OwnCommand(const char* command, const Arguments& arguments) {
  std::vector<std::string> words{std::filesystem::read_symlink("/proc/self/exe").string(), command};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

// The training, as carole train reads its words.
struct Training {
  Arguments words;
  TrainFlags flags;
  GivenFlags given;
};

// What is not given for the job, but for training.
void TakeFromTraining(const CommandLine& line, const Training& training, LaunchFlags& flags) {
  // Given: a recipe's own need not be a folder that the machines share.
  if (flags.job.work_dir.empty() && training.given.count("work_dir") > 0)
    flags.job.work_dir = training.given.at("work_dir");
  const auto num_gpus = training.given.find("num_gpus");
  if (line.Given("num_gpus") || num_gpus == training.given.end()) return;
  const auto number = ParseNumber<int>(num_gpus->second);
  if (!number)
    throw UsageError(
        fmt::format("[flags] --num_gpus: no number: got {}, want 0 to 1024", num_gpus->second));
  flags.cluster.num_gpus = *number;
}

Arguments EvaluatorArguments(const Training& training, double timeout) {
  Arguments eval = launch::EvalArguments(training.given, training.flags.run.train_dir, timeout);
  eval.push_back("--dataset_split_name=" + EvaluationSplit(training.flags));
  return eval;
}

bool AsksForEvaluation(const Training& training) {
  const EvaluationFlags& flags = training.flags.evaluation;
  return flags.every > 0 || flags.keep_best || training.given.count("epochs_per_eval") > 0;
}

// Evaluation that only a recipe asks for is an evaluator task's where several tasks train, as in
// its program: the machines that train may lack the files.
Arguments WordsOfRanks(const Training& training, const launch::Cluster& cluster) {
  Arguments words = training.words;
  const bool is_alone = std::ranges::count_if(cluster.tasks, launch::Trains) == 1;
  if (is_alone || training.flags.evaluation.epochs_per_eval == 0 || AsksForEvaluation(training))
    return words;
  if (std::ranges::count(cluster.tasks, launch::Role::kEvaluator, &launch::Task::role) > 0) {
    LogInfo("launch", "several tasks train: the evaluator task evaluates (--epochs_per_eval=0)");
  } else {
    LogWarning("launch",
               "several tasks train and TF_CONFIG names no evaluator: nothing evaluates; name one, "
               "or give --epochs_per_eval=1");
  }
  words.emplace_back("--epochs_per_eval=0");
  return words;
}

void RequireKeyPlace(const launch::JobOptions& job) {
  if (job.work_dir.empty() && job.ssh_key.empty())
    throw ConfigError(
        "[launch] key: nowhere for the job's ssh key: got neither --work_dir nor --ssh_key, want a "
        "folder that all machines share, or a mounted key");
}

void RequirePort(const launch::Task& me) {
  if (me.port == 0)
    throw ConfigError(
        fmt::format("[launch] {} {}: has no port in TF_CONFIG's cluster; list it "
                    "there as \"HOST:PORT\"",
                    launch::RoleName(me.role), me.index));
}

// The usual cause: two machines that were given the same task.
void WarnOfAnotherMachine(const launch::Task& me) {
  if (launch::IsOfThisMachine(me.host)) return;
  LogWarning("launch",
             "{} {}: {} is no address of this machine: unless its ports are passed on to here, "
             "task.index in TF_CONFIG is another machine's",
             launch::RoleName(me.role), me.index, me.host);
}

bool AsksForHelp(const Arguments& arguments) {
  return std::ranges::any_of(arguments, [](const std::string& word) {
    return word == "--help" || word == "-h" || word == "--helpfull";
  });
}

launch::Task FindMe(const launch::Cluster& cluster) {
  if (cluster.me.has_value()) return *cluster.me;
  if (cluster.size() == cluster.hosts[0].slots && cluster.tasks.size() == 1)
    return cluster.tasks[0];
  throw ConfigError(
      "[tf_config] task: missing: got none, want the type and index of this process in a job of "
      "several");
}

int RunTask(const launch::Task& me, const launch::Cluster& cluster, const LaunchFlags& flags,
            const Training& training) {
  const bool is_alone = cluster.tasks.size() == 1 && cluster.size() == 1;
  if (me.role == launch::Role::kEvaluator)
    Become(OwnCommand("eval", EvaluatorArguments(training, flags.eval_timeout)));
  if (me.role == launch::Role::kParameterServer && !flags.job.ends_ps) {
    LogInfo("launch", "ps {}: there are no parameter servers: nothing to do", me.index);
    return 0;
  }
  if (is_alone) Become(flags.job.command);
  WarnOfAnotherMachine(me);
  const auto is_held = [&](const launch::Task& task) { return IsHeld(task, flags.job); };
  if (me.rank != 0 || std::ranges::any_of(cluster.tasks, is_held)) RequireKeyPlace(flags.job);
  if (me.rank == 0) return launch::RunChief(cluster, flags.job);
  RequirePort(me);
  return launch::Serve(me, flags.job);
}

}  // namespace

int Launch(const Arguments& arguments) {
  LaunchFlags flags;
  CommandLine line("carole launch",
                   "Trains on all machines of a TF_CONFIG job: run it on each, as\n"
                   "carole launch [FLAGS] -- train [FLAGS OF TRAIN]");
  AddFlags(line, flags);
  const Arguments own(arguments.begin(), std::ranges::find(arguments, "--"));
  launch::SplitArguments split =
      AsksForHelp(own) ? launch::SplitArguments{own, {}} : launch::Split(arguments);
  Training training;
  CommandLine train_line("carole train", "Trains a net on all machines of a job.");
  AddTrainFlags(train_line, training.flags);
  launch::TakeFlags(
      [&](const std::string& name) { return line.Has(name) && !train_line.Has(name); }, split);
  training.words = split.train;
  if (!line.Parse(split.launch) ||
      !ParseWithRecipe(train_line, training.words, training.flags.recipe, &Recipe::train))
    return 0;
  training.given = train_line.Given();
  TakeFromTraining(line, training, flags);
  const launch::Cluster cluster = ReadCluster(line, flags.cluster);
  const launch::Task me = FindMe(cluster);
  flags.job.ends_ps = flags.ps == "idle";
  flags.job.command = OwnCommand("train", WordsOfRanks(training, cluster));
  flags.job.train_dir = training.flags.run.train_dir;
  launch::MpirunWords(
      {.network = flags.job.network, .ports = flags.job.ports});  // refuses bad ones
  return RunTask(me, cluster, flags, training);
}

}  // namespace carole::commands
