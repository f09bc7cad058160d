// How batches, lengths and schedules follow from the configuration, the data and the ranks.
//
// Batch. All ranks must come to the same local batch; hosts with different numbers of ranks do not
// if the batch is per host.
//
// Length. An epoch has ceil(samples / global batch) steps: the last batch is short. The shorter of
// the limits in steps and in epochs holds.
//
// Learning rate. TF-Slim does not count the records: an epoch of its schedule is the full data set
// as published, divided by the batch of one clone and by the replicas. Here, too, even if only a
// part of the data set is present. Only a data set without a published size is counted. The
// replicas are the ranks, unless the configuration has another number.
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
#include "src/commands/setup/evaluation.h"
#include "src/core/divide_up.h"
#include "src/core/error.h"
#include "src/core/log.h"
#include "src/core/text/escape.h"
#include "src/core/text/join_names.h"
#include "src/core/text/parse_number.h"
#include "src/core/text/to_int64.h"
#include "src/train/state/moving_statistics.h"

namespace carole::commands {
namespace {

int64_t LocalBatch(const BatchConfig& batch, const RankContext& context) {
  if (batch.per_host == 0) return batch.per_rank;
  const int ranks = context.communicator().local_size();
  if (batch.must_divide && batch.per_host % ranks != 0) {
    throw UsageError(fmt::format(
        "[flags] --train_batch_size: cannot be divided among the {} ranks of this host: got {}, "
        "want a multiple of {}",
        ranks, batch.per_host, ranks));
  }
  return DivideHostBatch(batch.per_host, context);
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

// Full help has the defaults and the differences, which would fill several lines of the log.
std::string DescribeRecipe(const Recipe& recipe) {
  const bool has_defaults = !recipe.train.empty();
  return fmt::format("{} ({}){}; `carole train --recipe={} --helpfull` says {}what differs",
                     recipe.name, recipe.program,
                     has_defaults ? fmt::format(", {} defaults", recipe.train.size()) : "",
                     recipe.name, has_defaults ? "which, and " : "");
}

// Returns the value of ModelOptions::batch_norm_decay.
double ResolveBatchNormDecay(const std::string& text, int64_t steps) {
  if (text == "auto") return train::FitStatisticsDecay(steps);
  return ParseNumber<double>(text).value_or(0);
}

std::string DescribeOptimizer(const TrainConfig& config) {
  optim::OptimizerOptions o = config.step.optimizer_options;
  std::string text = config.step.optimizer;
  const std::string settings =
      DescribeSettings(optim::FindOptimizer(config.step.optimizer).settings(o));
  if (!settings.empty()) text += ", " + settings;
  const std::pair<const char*, double> numbers[] = {
      {"weight decay", o.weight_decay},
      {"gradients clipped to global norm", o.clip_gradient_norm},
      {"moving averages", config.step.moving_average_decay},
      {"label smoothing", config.net.model.label_smoothing},
      {"batch norm decay", config.net.model.batch_norm_decay}};
  for (const auto& [name, value] : numbers) {
    if (value != 0) text += fmt::format(", {} {:g}", name, value);
  }
  return text;
}

// Says how long an epoch of the schedule is, if it differs from an epoch of the run.
std::string DescribeEpoch(const TrainPlan& plan, const optim::LearningRateOptions& o) {
  if (o.num_samples == plan.num_samples || (o.type == "fixed" && o.warmup_epochs == 0)) return "";
  return fmt::format("; its epochs have {} samples, the full data set", o.num_samples);
}

}  // namespace

TrainPlan MakeTrainPlan(TrainConfig& config, int64_t num_samples, const RankContext& context) {
  TrainPlan plan{.num_samples = num_samples};
  const int64_t batch_size = LocalBatch(config.batch, context);
  CheckLocalBatchesMatch(batch_size, context);
  plan.shape = MakeStepShape(config.step, config.reproducible_shards, batch_size, context.size());
  plan.local_batch = plan.shape.local_batch();
  plan.global_batch = plan.local_batch * context.size();
  const auto steps_per_epoch = static_cast<double>(DivideUp(num_samples, plan.global_batch));
  train::TrainerOptions& trainer = config.trainer;
  if (config.train_epochs > 0) {
    const int64_t steps = AtLeastOneStep(config.train_epochs * steps_per_epoch);
    const bool is_shorter = trainer.max_number_of_steps == 0 || steps < trainer.max_number_of_steps;
    if (is_shorter) trainer.max_number_of_steps = steps;
  }
  if (const double epochs = config.evaluation.epochs_per_eval; epochs > 0)
    trainer.eval_every = AtLeastOneStep(epochs * steps_per_epoch);
  config.net.model.batch_norm_decay =
      ResolveBatchNormDecay(config.batch_norm_decay, trainer.max_number_of_steps);
  config.step.accumulation_steps = plan.shape.micro_batches;
  const int64_t published_samples =
      io::FindSplit(io::FindDataset(config.data.dataset_name), config.data.pipeline.split)
          .num_samples;
  optim::LearningRateOptions& schedule = config.schedule;
  schedule.num_samples = published_samples > 0 ? published_samples : num_samples;
  schedule.batch_size = plan.local_batch;
  schedule.ranks = context.size();
  schedule.run_steps = trainer.max_number_of_steps;
  if (schedule.replicas_to_aggregate == 0) schedule.replicas_to_aggregate = context.size();
  return plan;
}

std::vector<PlanLine> DescribePlan(const TrainConfig& config, const TrainPlan& plan,
                                   const NetInput& input, const RankContext& context,
                                   const optim::LearningRate& rate, int64_t num_parameters) {
  const train::TrainerOptions& trainer = config.trainer;
  const std::string offset =
      config.data.pipeline.labels_offset != 0
          ? fmt::format(" (labels minus {})", config.data.pipeline.labels_offset)
          : "";
  const std::string micro_batches =
      plan.shape.micro_batches > 1 ? fmt::format(", in micro-batches of {}", plan.shape.graph_batch)
                                   : "";
  const std::string length = trainer.max_number_of_steps > 0
                                 ? fmt::format("{} steps", trainer.max_number_of_steps)
                                 : "no end";
  return {
      {"recipe", DescribeRecipe(FindRecipe(config.recipe))},
      {"net", fmt::format("{}: {} parameters, images {}x{}x{}, {} classes{}", input.net->name,
                          num_parameters, input.image_size, input.image_size, input.channels,
                          input.num_classes, offset)},
      {"ranks", fmt::format("{} x {} threads, {}, {}", context.size(), context.backend().threads(),
                            context.backend().name(), Name(config.machine.precision))},
      {"batch",
       fmt::format("{} local, {} global{}", plan.local_batch, plan.global_batch, micro_batches)},
      {"optimizer", DescribeOptimizer(config)},
      {"rate", rate.Describe(config.schedule) + DescribeEpoch(plan, config.schedule)},
      {"data", fmt::format("{} {}: {} samples in {}, preprocessing {}{}, as {}",
                           input.dataset->name, config.data.pipeline.split, plan.num_samples,
                           config.data.pipeline.dataset_dir, input.preprocessing,
                           input.augmentations.empty() ? "" : ", " + input.augmentations.Describe(),
                           Name(input.training_dtype()))},
      {"classes", Escape(JoinFirst(NetClassNames(config.data, input), 8))},
      {"length", trainer.eval_every > 0
                     ? fmt::format("{}, evaluated every {}", length, trainer.eval_every)
                     : length},
      {"train_dir",
       fmt::format("{}, seed {}",
                   trainer.train_dir.empty() ? "none: nothing is saved" : trainer.train_dir,
                   trainer.seed)}};
}

void LogPlan(std::span<const PlanLine> lines) {
  for (const auto& [name, value] : lines) LogInfo("run", "{:<10} {}", name, value);
}

void WarnOfFastDecay(const TrainConfig& config, const TrainPlan& plan,
                     const optim::LearningRate& rate) {
  if (!rate.decays_in_each_step()) return;
  LogWarning("optim",
             "--num_epochs_per_decay={:g}: is less than a step ({} samples in global batches of "
             "{}), so the learning rate decays in each step; use a smaller --batch_size or "
             "--learning_rate_decay_type=fixed",
             config.schedule.num_epochs_per_decay, config.schedule.num_samples, plan.global_batch);
}

}  // namespace carole::commands
