#include "src/commands/train_flags.h"

#include <fmt/format.h>

#include "src/commands/activation_memory.h"
#include "src/commands/inputs.h"

namespace carole::commands {
namespace {

void AddRunFlags(CommandLine& line, TrainFlags& flags) {
  line.Group("Run");
  line.Add("train_dir,output_dir", flags.train_dir,
           "folder of checkpoints and event files; a run goes on from there");
  line.Add("log_dir", flags.log_dir, "folder of event files; the default is train_dir");
  line.Add("batch_size", flags.batch_size, "images of a step, of each rank")
      ->check(CLI::PositiveNumber);
  line.Add("max_number_of_steps,max_step", flags.max_number_of_steps, "0: for ever")
      ->check(CLI::NonNegativeNumber);
  line.Add("label_smoothing", flags.label_smoothing,
           "share of the label that is spread over all classes");
  line.Add("seed", flags.seed, "of weights, order of images, distortions and dropout");
  line.Add("log_every_n_steps", flags.log_every_n_steps, "a line in the log")
      ->check(CLI::PositiveNumber);
  line.Add("save_summaries_secs", flags.save_summaries_secs, "between summaries")
      ->check(CLI::NonNegativeNumber);
  line.Add("save_interval_secs", flags.save_interval_secs, "between checkpoints")
      ->check(CLI::NonNegativeNumber);
  line.Add("keep_checkpoints", flags.keep_checkpoints, "newest ones that stay; 0: all")
      ->check(CLI::NonNegativeNumber);
  line.AddBool("sync_replicas", flags.sync_replicas,
               "training is always synchronous; shortens the schedule's epochs");
  line.Add("replicas_to_aggregate", flags.replicas_to_aggregate, "by this factor")
      ->check(CLI::PositiveNumber);
}

}  // namespace

void AddTrainFlags(CommandLine& line, TrainFlags& flags) {
  AddDatasetFlags(line, flags.dataset);
  AddInputFlags(line, flags.dataset);
  AddNetFlags(line, flags.net);
  AddRunFlags(line, flags);
  AddOptimizerFlags(line, flags.optimizer, flags.optimizer_options);
  AddScheduleFlags(line, flags.schedule);
  AddMachineFlags(line, flags.machine);
  AddActivationMemoryFlag(line, flags.activation_memory);
  AddCollectiveFlags(line, flags.machine);
  AddIgnoredFlags(line);
  AddUnsupportedFlags(line);
}

std::string DescribeOptimizer(const TrainFlags& flags) {
  const optim::Coefficients c =
      optim::FindOptimizer(flags.optimizer).plan(flags.optimizer_options).coefficients;
  const std::pair<const char*, double> numbers[] = {
      {"momentum", c.momentum}, {"decay", c.decay}, {"decay2", c.decay2}, {"epsilon", c.epsilon},
      {"power", c.power},       {"l1", c.l1},       {"l2", c.l2}};
  std::string text = flags.optimizer;
  for (const auto& [name, value] : numbers) {
    if (value != 0) text += fmt::format(", {} {:g}", name, value);
  }
  return text + fmt::format(", weight decay {:g}", flags.optimizer_options.weight_decay);
}

std::string DescribeSchedule(const TrainFlags& flags, const optim::LearningRate& rate) {
  const optim::LearningRateOptions& o = flags.schedule;
  std::string text = fmt::format("{:g}", o.learning_rate);
  if (o.type == "exponential") {
    text += fmt::format(", times {:g} every {} steps (decay_steps)", o.decay_factor,
                        rate.decay_steps());
  } else if (o.type == "polynomial") {
    text += fmt::format(", falling to {:g} in {} steps (decay_steps)", o.end_learning_rate,
                        rate.decay_steps());
  } else {
    text += ", fixed";
  }
  return o.warmup_epochs > 0 ? text + fmt::format(", warm-up of {:g} epochs", o.warmup_epochs)
                             : text;
}

}  // namespace carole::commands
