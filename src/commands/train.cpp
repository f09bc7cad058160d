// carole train: flags to objects, then the trainer runs.
#include <fmt/format.h>

#include "io/record_index.h"
#include "nets/summary.h"
#include "src/commands/activation_memory.h"
#include "src/commands/commands.h"
#include "src/commands/inputs.h"
#include "src/commands/job.h"
#include "src/commands/train_flags.h"
#include "src/core/log.h"
#include "src/train/keras_model.h"
#include "src/train/stop_signals.h"
#include "src/train/trainer.h"

namespace carole::commands {
namespace {

int64_t CountSamples(const DatasetFlags& flags, const NetInput& input) {
  return io::LoadRecordIndex(
             {.shards = io::FindShards(*input.dataset, flags.dataset_split_name, flags.dataset_dir),
              .work_dir = flags.work_dir,
              .threads = flags.num_preprocessing_threads,
              .skip_damage = flags.max_bad_records > 0})
      .num_records();
}

nets::Model BuildTrainingModel(const TrainFlags& flags, const NetInput& input) {
  nets::ModelOptions options = MakeModelOptions(input, flags.batch_size);
  options.training = true;
  options.label_smoothing = flags.label_smoothing;
  return nets::BuildModel(*input.net, options);
}

void LogStart(const TrainFlags& flags, const NetInput& input, const Job& job,
              const optim::LearningRate& rate, int64_t num_parameters) {
  LogInfo("run", "net        {}: {} parameters, images {}x{}x{}, {} classes", input.net->name,
          num_parameters, input.image_size, input.image_size, input.channels, input.num_classes);
  LogInfo("run", "ranks      {} x {} threads, {}", job.size(), job.backend().threads(),
          job.backend().name());
  LogInfo("run", "batch      {} local, {} global", flags.batch_size, flags.batch_size * job.size());
  LogInfo("run", "optimizer  {}", DescribeOptimizer(flags));
  LogInfo("run", "rate       {}", DescribeSchedule(flags, rate));
  LogInfo("run", "data       {} {}: {} samples in {}", input.dataset->name,
          flags.dataset.dataset_split_name, flags.schedule.num_samples, flags.dataset.dataset_dir);
  LogInfo("run", "train_dir  {}, seed {}", flags.train_dir, flags.seed);
}

// Weights, gradients and slots.
int64_t StateBytes(const TrainFlags& flags, int64_t parameters) {
  const auto slots = optim::FindOptimizer(flags.optimizer).plan(flags.optimizer_options).slots;
  return (2 + static_cast<int64_t>(slots.size())) * parameters *
         static_cast<int64_t>(sizeof(float));
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
          .max_bad_records = flags.dataset.max_bad_records,
          .spare_memory = !flags.activation_memory.empty(),
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

int Run(TrainFlags& flags, const CommandLine& line, const NetInput& input, Job& job) {
  const train::StopSignals signals;
  flags.schedule.num_samples = CountSamples(flags.dataset, input);
  flags.schedule.batch_size = flags.batch_size;
  if (flags.sync_replicas) flags.schedule.replicas_to_aggregate = flags.replicas_to_aggregate;
  const optim::LearningRate rate(flags.schedule);
  nets::Model model = BuildTrainingModel(flags, input);
  train::TrainerOptions trainer_options = MakeTrainerOptions(flags, input, line);
  trainer_options.keras =
      train::MakeKerasModel(*model.graph, model.logits, std::string(input.net->name));
  const int64_t parameters = nets::CountParameters(*model.graph).trainable;
  LogStart(flags, input, job, rate, parameters);

  train::TrainStep step(std::move(model.graph), job.backend(), job.communicator(),
                        {.activation_bytes = ActivationBytes(flags.activation_memory, job,
                                                             StateBytes(flags, parameters)),
                         .optimizer = flags.optimizer,
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
                         std::move(trainer_options));
  return static_cast<int>(trainer.Run());
}

}  // namespace

int Train(const Arguments& arguments) {
  TrainFlags flags;
  CommandLine line("carole train", "Trains a net; goes on with what train_dir holds.");
  AddTrainFlags(line, flags);
  return ParseAndRun(line, arguments, flags.dataset, flags.net, flags.machine,
                     [&](Job& job, const NetInput& input) { return Run(flags, line, input, job); });
}
}  // namespace carole::commands
