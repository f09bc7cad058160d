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
#include "src/core/text/whole_number.h"

namespace carole::commands {
namespace {

// --train_batch_size wins over a default of --batch_size, not over a given one. Given, it is shared
// without a rest; a recipe's shrinks to what the ranks can share.
int64_t LocalBatch(const RunFlags& flags, const CommandLine& line, const Job& job) {
  const bool given = line.Given("train_batch_size");
  if (given && line.Given("batch_size"))
    throw UsageError("[flags] --batch_size, --train_batch_size: both given; name one of them");
  if (flags.train_batch_size == 0 || (line.Given("batch_size") && !given)) return flags.batch_size;
  const int ranks = job.communicator().local_size();
  if (given && flags.train_batch_size % ranks != 0) {
    throw UsageError(fmt::format(
        "[flags] --train_batch_size: the {} ranks of this machine cannot share it: got {}, want a "
        "multiple of {}",
        ranks, flags.train_batch_size, ranks));
  }
  return ShareOfMachine(flags.train_batch_size, job);
}

void CheckAlike(int64_t local_batch, const Job& job) {
  const std::vector<int64_t> all = AllGather(job.communicator(), local_batch, {.what = "batch"});
  for (int rank = 0; rank < job.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw ConfigError(
        fmt::format("[flags] --train_batch_size: rank {} has a batch of {}, rank 0 of {}; start as "
                    "many ranks on every machine, or give --batch_size",
                    rank, all[rank], all[0]));
  }
}

int64_t AtLeastOneStep(double steps) { return std::max<int64_t>(1, ToInt64(std::ceil(steps))); }

// The platform passes --max_step=0 where its user says nothing: that takes no limit away.
int64_t MaxSteps(const RunFlags& flags, const CommandLine& line) {
  const bool is_platforms = flags.max_step > 0 && !line.Given("max_number_of_steps");
  return is_platforms ? flags.max_step : flags.max_number_of_steps;
}

// The shorter of the two; but one that is given wins over a recipe's other one.
int64_t StepLimit(const RunFlags& flags, const CommandLine& line, int64_t steps_per_epoch) {
  const int64_t max_steps = MaxSteps(flags, line);
  if (flags.train_epochs == 0) {
    if (line.Given("train_epochs") && max_steps == 0) {
      throw UsageError(
          "[flags] --train_epochs: got 0, want more; without an end give neither it nor "
          "--max_number_of_steps");
    }
    return max_steps;
  }
  const int64_t steps = AtLeastOneStep(flags.train_epochs * static_cast<double>(steps_per_epoch));
  if (max_steps == 0) return steps;
  const bool epochs_given = line.Given("train_epochs");
  const bool steps_given = line.Given("max_number_of_steps") || flags.max_step > 0;
  if (epochs_given != steps_given) return epochs_given ? steps : max_steps;
  return std::min(steps, max_steps);
}

int64_t EvalEvery(const EvaluationFlags& flags, const CommandLine& line, int64_t steps_per_epoch) {
  const bool never = line.Given("eval_every") && !line.Given("epochs_per_eval");
  if (flags.every > 0 || flags.epochs_per_eval == 0 || never) return flags.every;
  return AtLeastOneStep(flags.epochs_per_eval * static_cast<double>(steps_per_epoch));
}

std::string DescribeOptimizer(const TrainFlags& flags) {
  const optim::OptimizerOptions& o = flags.optimizer_options;
  const optim::UpdatePlan plan = optim::FindOptimizer(flags.optimizer).plan(o);
  const UpdateCoefficients& c = plan.coefficients;
  const std::pair<const char*, double> numbers[] = {
      {"momentum", c.momentum},
      {"decay", c.decay},
      {"decay2", c.decay2},
      {"epsilon", c.epsilon},
      {"power", c.power},
      {"l1", c.l1},
      {"l2", c.l2},
      {"eta", plan.trust},
      {"weight decay", o.weight_decay},
      {"gradients cut to norm", o.clip_gradient_norm},
      {"moving averages", flags.run.moving_average_decay},
      {"label smoothing", flags.run.label_smoothing}};
  std::string text = flags.optimizer;
  if (plan.rule == UpdateRule::kNesterov) text += " of Nesterov";
  for (const auto& [name, value] : numbers) {
    if (value != 0) text += fmt::format(", {} {:g}", name, value);
  }
  return text;
}

// What the rate takes for an epoch, where that is not what an epoch is.
std::string DescribeEpoch(const TrainPlan& plan) {
  const optim::LearningRateOptions& o = plan.schedule;
  if (o.num_samples == plan.num_samples || (o.type == "fixed" && o.warmup_epochs == 0)) return "";
  return fmt::format("; its epochs are of the {} samples of the full data set", o.num_samples);
}

}  // namespace

TrainPlan MakeTrainPlan(const TrainFlags& flags, const CommandLine& line, int64_t num_samples,
                        const Job& job) {
  TrainPlan plan{.num_samples = num_samples, .schedule = flags.schedule};
  const int64_t batch_size = LocalBatch(flags.run, line, job);
  CheckAlike(batch_size, job);
  plan.shape = MakeStepShape(flags.ranks, batch_size, job.size());
  plan.local_batch = plan.shape.local_batch();
  plan.global_batch = plan.local_batch * job.size();
  const int64_t steps_per_epoch =
      DivideUp(num_samples, plan.global_batch);  // the last one is short
  plan.max_steps = StepLimit(flags.run, line, steps_per_epoch);
  plan.eval_every = EvalEvery(flags.evaluation, line, steps_per_epoch);
  // As TF-Slim, which does not look how many records there are.
  const int64_t full =
      io::FindSplit(io::FindDataset(flags.dataset.dataset_name), flags.dataset.dataset_split_name)
          .num_samples;
  plan.schedule.num_samples = full > 0 ? full : num_samples;
  plan.schedule.batch_size = plan.local_batch;
  plan.schedule.ranks = job.size();
  const bool given = flags.run.sync_replicas && line.Given("replicas_to_aggregate");
  plan.schedule.replicas_to_aggregate = given ? flags.run.replicas_to_aggregate : job.size();
  return plan;
}

std::vector<PlanLine> DescribePlan(const TrainFlags& flags, const TrainPlan& plan,
                                   const NetInput& input, const Job& job,
                                   const optim::LearningRate& rate, int64_t num_parameters) {
  const Recipe& recipe = FindRecipe(flags.recipe);
  const std::string offset = flags.dataset.labels_offset != 0
                                 ? fmt::format(" (labels less {})", flags.dataset.labels_offset)
                                 : "";
  const std::string pieces =
      plan.shape.micro_batches > 1 ? fmt::format(", {} at a time", plan.shape.graph_batch) : "";
  const std::string length =
      plan.max_steps > 0 ? fmt::format("{} steps", plan.max_steps) : "forever";
  return {
      {"recipe", fmt::format("{} ({}); otherwise than there: {}", recipe.name, recipe.program,
                             recipe.otherwise)},
      {"net", fmt::format("{}: {} parameters, images {}x{}x{}, {} classes{}", input.net->name,
                          num_parameters, input.image_size, input.image_size, input.channels,
                          input.num_classes, offset)},
      {"ranks", fmt::format("{} x {} threads, {}, {}", job.size(), job.backend().threads(),
                            job.backend().name(), flags.machine.precision)},
      {"batch", fmt::format("{} local, {} global{}", plan.local_batch, plan.global_batch, pieces)},
      {"optimizer", DescribeOptimizer(flags)},
      {"rate", rate.Describe(plan.schedule) + DescribeEpoch(plan)},
      {"data",
       fmt::format("{} {}: {} samples in {}, preprocessing {}, as {}", input.dataset->name,
                   flags.dataset.dataset_split_name, plan.num_samples, flags.dataset.dataset_dir,
                   input.preprocessing, Name(input.training_dtype()))},
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
