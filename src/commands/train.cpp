// carole train: flags to objects, then the trainer runs.
#include <fmt/format.h>

#include "io/record_index.h"
#include "nets/summary.h"
#include "src/commands/commands.h"
#include "src/commands/inputs.h"
#include "src/commands/job.h"
#include "src/core/log.h"
#include "src/train/stop_signals.h"
#include "src/train/trainer.h"

namespace carole::commands {
namespace {

// TF-Slim leaves the seed to the clock; a fixed one makes every run repeatable.
constexpr uint64_t kDefaultSeed = 1;

struct TrainFlags {
  DatasetFlags dataset;
  NetFlags net;
  MachineFlags machine;
  std::string optimizer = "rmsprop";
  optim::OptimizerOptions optimizer_options;
  optim::LearningRateOptions schedule;
  std::string train_dir = "/tmp/tfmodel/";
  std::string log_dir;
  int64_t batch_size = 32;
  int64_t max_number_of_steps = 0;
  int64_t log_every_n_steps = 10;
  double save_summaries_secs = 600;
  double save_interval_secs = 600;
  int keep_checkpoints = 5;
  double label_smoothing = 0;
  bool sync_replicas = false;
  int64_t replicas_to_aggregate = 1;
  uint64_t seed = kDefaultSeed;
};

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

void AddFlags(CommandLine& line, TrainFlags& flags) {
  AddDatasetFlags(line, flags.dataset);
  AddNetFlags(line, flags.net);
  AddRunFlags(line, flags);
  AddOptimizerFlags(line, flags.optimizer, flags.optimizer_options);
  AddScheduleFlags(line, flags.schedule);
  AddMachineFlags(line, flags.machine);
  AddCollectiveFlags(line, flags.machine);
  AddIgnoredFlags(line);
  AddUnsupportedFlags(line);
}

int64_t CountSamples(const DatasetFlags& flags, const NetInput& input) {
  return io::LoadRecordIndex(
             {.shards = io::FindShards(*input.dataset, flags.dataset_split_name, flags.dataset_dir),
              .work_dir = flags.work_dir,
              .threads = flags.num_preprocessing_threads})
      .num_records();
}

nets::Model BuildTrainingModel(const TrainFlags& flags, const NetInput& input) {
  return nets::BuildModel(*input.net, {.batch_size = flags.batch_size,
                                       .image_size = input.image_size,
                                       .channels = input.channels,
                                       .num_classes = input.num_classes,
                                       .training = true,
                                       .label_smoothing = flags.label_smoothing});
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

std::string DescribeSchedule(const optim::LearningRateOptions& o, const optim::LearningRate& rate) {
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

void LogStart(const TrainFlags& flags, const NetInput& input, const Job& job,
              const optim::LearningRate& rate, int64_t num_parameters) {
  LogInfo("run", "net        {}: {} parameters, images {}x{}x{}, {} classes", input.net->name,
          num_parameters, input.image_size, input.image_size, input.channels, input.num_classes);
  LogInfo("run", "ranks      {} x {} threads, {}", job.size(), job.backend().threads(),
          job.backend().name());
  LogInfo("run", "batch      {} local, {} global", flags.batch_size, flags.batch_size * job.size());
  LogInfo("run", "optimizer  {}", DescribeOptimizer(flags));
  LogInfo("run", "rate       {}", DescribeSchedule(flags.schedule, rate));
  LogInfo("run", "data       {} {}: {} samples in {}", input.dataset->name,
          flags.dataset.dataset_split_name, flags.schedule.num_samples, flags.dataset.dataset_dir);
  LogInfo("run", "train_dir  {}, seed {}", flags.train_dir, flags.seed);
}

train::TrainerOptions MakeTrainerOptions(const TrainFlags& flags, const NetInput& input,
                                         const CommandLine& line) {
  std::string given;
  for (const std::string& flag : line.GivenFlags()) given += (given.empty() ? "--" : " --") + flag;
  return {.train_dir = flags.train_dir,
          .log_dir = flags.log_dir,
          .max_number_of_steps = flags.max_number_of_steps,
          .log_every_n_steps = flags.log_every_n_steps,
          .save_interval_secs = flags.save_interval_secs,
          .save_summaries_secs = flags.save_summaries_secs,
          .keep_checkpoints = flags.keep_checkpoints,
          .seed = flags.seed,
          .attributes = {{"net", std::string(input.net->name)},
                         {"dataset", std::string(input.dataset->name)},
                         {"image_size", std::to_string(input.image_size)},
                         {"num_classes", std::to_string(input.num_classes)},
                         {"labels_offset", std::to_string(flags.dataset.labels_offset)},
                         {"preprocessing", input.preprocessing},
                         {"flags", given}},
          .stop_requested = train::StopSignals::Requested};
}

int Run(TrainFlags& flags, const CommandLine& line, Job& job) {
  const train::StopSignals signals;
  line.LogIgnored();
  const NetInput input = ResolveNetInput(flags.net, flags.dataset);
  flags.schedule.num_samples = CountSamples(flags.dataset, input);
  flags.schedule.batch_size = flags.batch_size;
  if (flags.sync_replicas) flags.schedule.replicas_to_aggregate = flags.replicas_to_aggregate;
  const optim::LearningRate rate(flags.schedule);
  nets::Model model = BuildTrainingModel(flags, input);
  LogStart(flags, input, job, rate, nets::CountParameters(*model.graph).trainable);

  train::TrainStep step(std::move(model.graph), job.backend(), job.communicator(),
                        {.optimizer = flags.optimizer,
                         .optimizer_options = flags.optimizer_options,
                         .buckets = MakeBucketOptions(flags.machine)});
  auto make_source = [&](const train::RunState& start) {
    io::PipelineOptions options = MakePipelineOptions(flags.dataset, input, job, flags.batch_size);
    options.training = options.shuffle = options.repeat = true;
    options.seed = start.seed;
    options.start_epoch = start.epoch;
    options.start_position = start.position;
    return io::MakePipeline(options);
  };
  train::Trainer trainer(step, job.communicator(), rate, make_source,
                         MakeTrainerOptions(flags, input, line));
  return static_cast<int>(trainer.Run());
}

}  // namespace

int Train(const Arguments& arguments) {
  TrainFlags flags;
  CommandLine line("carole train", "Trains a net; goes on with what train_dir holds.");
  AddFlags(line, flags);
  if (!line.Parse(arguments)) return 0;
  line.RefuseUnsupported();
  ResolveNetInput(flags.net, flags.dataset);  // wrong names fail before ranks meet
  optim::FindOptimizer(flags.optimizer);
  return RunJob(flags.machine, [&](Job& job) { return Run(flags, line, job); });
}
}  // namespace carole::commands
