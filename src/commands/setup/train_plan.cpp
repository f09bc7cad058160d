// How batches, lengths and schedules follow from flags and recipes.
//
// The programs whose jobs run here say the same things with different flags, and a recipe sets
// defaults of all kinds. So a value alone does not decide. What the user gave, on the command line
// or in a --config file, wins over what a recipe sets.
//
// Batch. --batch_size is per rank, as TF-Slim's is per clone. --train_batch_size is per host and is
// divided among the host's ranks, as in the programs with one process per host.
//   both given               an error
//   --train_batch_size       must be divisible by the ranks of the host
//   --batch_size             wins over a recipe's --train_batch_size
//   neither                  a recipe's --train_batch_size, rounded down: 32 on 3 ranks are 10 each
// All ranks must come to the same local batch; hosts with different numbers of ranks do not.
//
// Length. An epoch has ceil(samples / global batch) steps: the last batch is short.
//   --max_number_of_steps    a limit in steps; --max_step is the same as the UAI platform passes
//   it,
//                            and 0 there means "not set"
//   --train_epochs           a limit in epochs
//   both given, or neither   the shorter limit
//   one given                it wins over the other, which can only be a recipe's
// Evaluation follows the same idea: --eval_every in steps wins over --epochs_per_eval; giving
// --eval_every=0 turns off evaluation that only a recipe asked for.
//
// Learning rate. TF-Slim does not count the records: an epoch of its schedule is the full data set
// as published, divided by the batch of one clone and by the replicas. Here, too, even if only a
// part of the data set is present. Only a data set without a published size is counted. The
// replicas are the ranks. With --sync_replicas they are --replicas_to_aggregate, if that is given,
// so that old command lines decay as often as they did.
//
// Example: MNIST with 300 of its 60,000 training images present, --batch_size=32, one rank,
// TF-Slim's defaults. An epoch of the run has ceil(300 / 32) = 10 steps, but the rate decays every
// 2 * 60000 / 32 = 3750 steps. On two ranks the global batch is 64: an epoch has 5 steps, and the
// rate decays every 1875 steps.
#include "src/commands/setup/train_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "io/datasets/datasets.h"
#include "src/commands/cli/recipes.h"
#include "src/core/divide_up.h"
#include "src/core/error.h"
#include "src/core/log.h"
#include "src/core/text/to_int64.h"

namespace carole::commands {
namespace {

int64_t LocalBatch(const RunFlags& flags, const CommandLine& line, const RankContext& context) {
  const bool given = line.IsGiven("train_batch_size");
  if (given && line.IsGiven("batch_size"))
    throw UsageError("[flags] --batch_size, --train_batch_size: both given; give only one of them");
  if (flags.train_batch_size == 0 || (line.IsGiven("batch_size") && !given))
    return flags.batch_size;
  const int ranks = context.communicator().local_size();
  if (given && flags.train_batch_size % ranks != 0) {
    throw UsageError(fmt::format(
        "[flags] --train_batch_size: cannot be divided among the {} ranks of this host: got {}, "
        "want a multiple of {}",
        ranks, flags.train_batch_size, ranks));
  }
  return DivideHostBatch(flags.train_batch_size, context);
}

void CheckLocalBatchesMatch(int64_t local_batch, const RankContext& context) {
  const std::vector<int64_t> all =
      AllGather(context.communicator(), local_batch, {.what = "batch"});
  for (int rank = 0; rank < context.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw ConfigError(
        fmt::format("[flags] --train_batch_size: local batches differ: rank {} has {}, rank 0 has "
                    "{}; start equally many ranks on every host, or give --batch_size",
                    rank, all[rank], all[0]));
  }
}

int64_t AtLeastOneStep(double steps) { return std::max<int64_t>(1, ToInt64(std::ceil(steps))); }

// The UAI platform passes --max_step=0 if its user sets no limit. That must not remove another one.
int64_t MaxSteps(const RunFlags& flags, const CommandLine& line) {
  const bool use_max_step = flags.max_step > 0 && !line.IsGiven("max_number_of_steps");
  return use_max_step ? flags.max_step : flags.max_number_of_steps;
}

// Returns the step after which training ends, 0 for no end.
int64_t StepLimit(const RunFlags& flags, const CommandLine& line, int64_t steps_per_epoch) {
  const int64_t max_steps = MaxSteps(flags, line);
  if (flags.train_epochs == 0) {
    if (line.IsGiven("train_epochs") && max_steps == 0) {
      throw UsageError(
          "[flags] --train_epochs: got 0, want more than 0; to train without an end, give neither "
          "it nor --max_number_of_steps");
    }
    return max_steps;
  }
  const int64_t steps = AtLeastOneStep(flags.train_epochs * static_cast<double>(steps_per_epoch));
  if (max_steps == 0) return steps;
  const bool epochs_given = line.IsGiven("train_epochs");
  const bool steps_given = line.IsGiven("max_number_of_steps") || flags.max_step > 0;
  if (epochs_given != steps_given) return epochs_given ? steps : max_steps;
  return std::min(steps, max_steps);
}

int64_t EvalEvery(const EvaluationFlags& flags, const CommandLine& line, int64_t steps_per_epoch) {
  const bool never = line.IsGiven("eval_every") && !line.IsGiven("epochs_per_eval");
  if (flags.every > 0 || flags.epochs_per_eval == 0 || never) return flags.every;
  return AtLeastOneStep(flags.epochs_per_eval * static_cast<double>(steps_per_epoch));
}

std::string DescribeOptimizer(const TrainFlags& flags) {
  optim::OptimizerOptions o = flags.optimizer_options;
  std::string text = flags.optimizer;
  const std::string settings = DescribeSettings(optim::FindOptimizer(flags.optimizer).settings(o));
  if (!settings.empty()) text += ", " + settings;
  const std::pair<const char*, double> numbers[] = {
      {"weight decay", o.weight_decay},
      {"gradients clipped to global norm", o.clip_gradient_norm},
      {"moving averages", flags.run.moving_average_decay},
      {"label smoothing", flags.run.label_smoothing}};
  for (const auto& [name, value] : numbers) {
    if (value != 0) text += fmt::format(", {} {:g}", name, value);
  }
  return text;
}

// Says how long an epoch of the schedule is, if it differs from an epoch of the run.
std::string DescribeEpoch(const TrainPlan& plan) {
  const optim::LearningRateOptions& o = plan.schedule;
  if (o.num_samples == plan.num_samples || (o.type == "fixed" && o.warmup_epochs == 0)) return "";
  return fmt::format("; its epochs have {} samples, the full data set", o.num_samples);
}

}  // namespace

TrainPlan MakeTrainPlan(const TrainFlags& flags, const CommandLine& line, int64_t num_samples,
                        const RankContext& context) {
  TrainPlan plan{.num_samples = num_samples, .schedule = flags.schedule};
  const int64_t batch_size = LocalBatch(flags.run, line, context);
  CheckLocalBatchesMatch(batch_size, context);
  plan.shape = MakeStepShape(flags.ranks, batch_size, context.size());
  plan.local_batch = plan.shape.local_batch();
  plan.global_batch = plan.local_batch * context.size();
  const int64_t steps_per_epoch = DivideUp(num_samples, plan.global_batch);
  plan.max_steps = StepLimit(flags.run, line, steps_per_epoch);
  plan.eval_every = EvalEvery(flags.evaluation, line, steps_per_epoch);
  const int64_t published_samples =
      io::FindSplit(io::FindDataset(flags.dataset.dataset_name), flags.dataset.dataset_split_name)
          .num_samples;
  plan.schedule.num_samples = published_samples > 0 ? published_samples : num_samples;
  plan.schedule.batch_size = plan.local_batch;
  plan.schedule.ranks = context.size();
  const bool given = flags.run.sync_replicas && line.IsGiven("replicas_to_aggregate");
  plan.schedule.replicas_to_aggregate = given ? flags.run.replicas_to_aggregate : context.size();
  return plan;
}

std::vector<PlanLine> DescribePlan(const TrainFlags& flags, const TrainPlan& plan,
                                   const NetInput& input, const RankContext& context,
                                   const optim::LearningRate& rate, int64_t num_parameters) {
  const Recipe& recipe = FindRecipe(flags.recipe);
  const std::string offset = flags.dataset.labels_offset != 0
                                 ? fmt::format(" (labels minus {})", flags.dataset.labels_offset)
                                 : "";
  const std::string micro_batches =
      plan.shape.micro_batches > 1 ? fmt::format(", in micro-batches of {}", plan.shape.graph_batch)
                                   : "";
  const std::string length =
      plan.max_steps > 0 ? fmt::format("{} steps", plan.max_steps) : "no end";
  return {
      {"recipe",
       fmt::format("{} ({}); differences: {}", recipe.name, recipe.program, recipe.differences)},
      {"net", fmt::format("{}: {} parameters, images {}x{}x{}, {} classes{}", input.net->name,
                          num_parameters, input.image_size, input.image_size, input.channels,
                          input.num_classes, offset)},
      {"ranks", fmt::format("{} x {} threads, {}, {}", context.size(), context.backend().threads(),
                            context.backend().name(), flags.machine.precision)},
      {"batch",
       fmt::format("{} local, {} global{}", plan.local_batch, plan.global_batch, micro_batches)},
      {"optimizer", DescribeOptimizer(flags)},
      {"rate", rate.Describe(plan.schedule) + DescribeEpoch(plan)},
      {"data", fmt::format("{} {}: {} samples in {}, preprocessing {}{}, as {}",
                           input.dataset->name, flags.dataset.dataset_split_name, plan.num_samples,
                           flags.dataset.dataset_dir, input.preprocessing,
                           input.augmentations.empty() ? "" : ", " + input.augmentations.Describe(),
                           Name(input.training_dtype()))},
      {"length", plan.eval_every > 0
                     ? fmt::format("{}, evaluated every {}", length, plan.eval_every)
                     : length},
      {"train_dir",
       fmt::format("{}, seed {}",
                   flags.run.train_dir.empty() ? "none: nothing is saved" : flags.run.train_dir,
                   flags.run.seed)}};
}

void LogPlan(std::span<const PlanLine> lines) {
  for (const auto& [name, value] : lines) LogInfo("run", "{:<10} {}", name, value);
}

}  // namespace carole::commands
