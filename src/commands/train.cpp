// carole train: makes the objects that the flags describe, then runs the trainer.
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <limits>

#include "collectives/ranks/rank_local_work.h"
#include "collectives/ranks/settings_check.h"
#include "io/checkpoint/checkpoint_folder.h"
#include "io/weights/open_weights.h"
#include "launch/machine/cores.h"
#include "nets/summary.h"
#include "src/commands/cli/commands.h"
#include "src/commands/cli/recipes.h"
#include "src/commands/cli/version.h"
#include "src/commands/setup/activation_memory.h"
#include "src/commands/setup/evaluation.h"
#include "src/commands/setup/raw_data.h"
#include "src/commands/setup/train_plan.h"
#include "src/core/files/bytes.h"
#include "src/core/files/disk.h"
#include "src/core/log.h"
#include "src/export/keras_model.h"
#include "src/train/loop/stop_signals.h"
#include "src/train/loop/time_limit.h"
#include "src/train/loop/trainer.h"
#include "src/train/state/warm_start.h"

namespace carole::commands {
namespace {

namespace fs = std::filesystem;

nets::Model BuildTrainingModel(const TrainFlags& flags, const NetInput& input,
                               int64_t local_batch) {
  nets::ModelOptions options = MakeTrainingModelOptions(input, local_batch);
  options.label_smoothing = flags.run.label_smoothing;
  options.keep_end_points = flags.monitoring.histograms;
  return nets::BuildModel(*input.net, options);
}

// Returns the time limit of --max_time and of the Slurm job.
train::TimeLimit MakeTimeLimit(const RunFlags& flags) {
  const char* end = std::getenv("SLURM_JOB_END_TIME");
  return train::TimeLimit({.max_seconds = flags.max_time,
                           .job_end = end != nullptr ? std::strtoll(end, nullptr, 10) : 0,
                           .margin_seconds = flags.stop_before_job_end});
}

// Returns a function that says whether this rank was asked to stop, by a signal or a time limit.
std::function<bool()> MakeStopRequest(const train::TimeLimit& limit) {
  return [limit, is_over = false]() mutable {
    if (train::StopRequested()) return true;
    const std::string reason = limit.Reason();
    if (!reason.empty() && !is_over) LogInfo("run", "{}", reason);
    is_over = !reason.empty();
    return is_over;
  };
}

std::function<void(VariableStore&)> MakeWarmStart(const FineTuningFlags& flags) {
  if (flags.checkpoint_path.empty()) return {};
  return [flags](VariableStore& store) {
    const auto reader = io::OpenWeights(flags.checkpoint_path);
    const train::WarmStartReport report = train::WarmStart(
        *reader,
        {.exclude_scopes = flags.exclude_scopes, .ignore_missing = flags.ignore_missing_vars},
        store);
    train::LogWarmStartReport(report, reader->path());
  };
}

DatasetFlags EvaluationDataset(const TrainFlags& flags) {
  DatasetFlags dataset = flags.dataset;
  dataset.dataset_split_name = EvaluationSplit(flags);
  return dataset;
}

// An interval of 0 seconds means never, as in TensorFlow's Supervisor.
double OrNever(double seconds) {
  return seconds > 0 ? seconds : std::numeric_limits<double>::infinity();
}

// Checks that all ranks have equal threads and processors, on which the bits of --reproducible
// depend in addition to flags and data. Returns them as run metadata. Collective.
train::RunMetadata CheckKernelsMatch(const RankContext& context) {
  train::RunMetadata metadata = {
      {train::kThreads, fmt::format("{} threads", context.backend().threads())},
      {train::kProcessor, launch::CpuModelName()}};
  collectives::CheckSettingsMatch(context.communicator(), metadata);
  return metadata;
}

train::TrainerOptions MakeTrainerOptions(const TrainFlags& flags, const TrainPlan& plan,
                                         const NetInput& input, const CommandLine& line,
                                         const RankContext& context) {
  const RunFlags& run = flags.run;
  train::TrainerOptions options{
      .train_dir = run.train_dir,
      .max_number_of_steps = plan.max_steps,
      .log_every_n_steps = run.log_every_n_steps,
      .save_interval_secs = OrNever(run.save_interval_secs),
      .keep_checkpoints = run.keep_checkpoints,
      .max_bad_records = flags.dataset.max_bad_records,
      .low_memory = !flags.activation_memory.empty(),
      .on_nan = run.on_nan == "skip" ? train::OnNan::kSkip : train::OnNan::kStop,
      .seed = run.seed,
      .attributes = MakeDataMetadata(flags.dataset, input),
      .eval_every = plan.eval_every,
      .keep_best = flags.evaluation.keep_best};
  const int64_t block = flags.dataset.shuffle_block_records;
  options.attributes.merge(train::RunMetadata{
      {train::kNet, std::string(input.net->name)},
      {train::kPrecision, flags.machine.precision},
      {train::kVersion, Version()},
      {train::kSplit, flags.dataset.dataset_split_name},
      {train::kOptimizer, flags.optimizer},
      {train::kGlobalBatch, std::to_string(plan.global_batch)},
      {train::kRecordOrder,
       fmt::format("{} records{}", plan.num_samples,
                   block > 0 ? fmt::format(" shuffled in blocks of {}", block) : "")},
      {train::kMaxSteps, std::to_string(plan.max_steps)},
      {train::kFlags, JoinFlags(line.given_flags())}});
  if (flags.ranks.reproducible && context.backend().on_host())
    options.attributes.merge(CheckKernelsMatch(context));
  options.warm_start = MakeWarmStart(flags.fine_tuning);
  return options;
}

DeviceOwned<train::TrainStep> MakeStep(const TrainFlags& flags, nets::Model model,
                                       const StepShape& shape, const RankContext& context) {
  train::StepOptions options{.optimizer = flags.optimizer,
                             .optimizer_options = flags.optimizer_options,
                             .moving_average_decay = flags.run.moving_average_decay,
                             .trainable_scopes = flags.fine_tuning.trainable_scopes};
  options.loss_scale =
      train::ParseLossScale(flags.run.loss_scale, ParsePrecision(flags.machine.precision));
  SetStepOptions(flags.ranks, flags.machine, shape, options);
  SetMemory(flags.activation_memory, context, *model.graph, options);
  options.connect_devices = [&context] { context.ConnectDevices(); };
  return MakeDeviceOwned<train::TrainStep>(context, std::move(model.graph), context.backend(),
                                           context.communicator(), options);
}

// Copies the newest intact checkpoint to --final_model.
void WriteFinalModel(const RunFlags& run) {
  if (run.final_model.empty() || run.train_dir.empty()) return;
  const auto latest = io::ReadLatest(run.train_dir);
  if (!latest) return;
  const fs::path path = fs::path(run.train_dir) / run.final_model;
  RemoveTemporaryFiles(path.parent_path(), path.filename());
  CopyFile(latest->path, path);
  LogInfo("train", "{} is a copy of {}", path.string(), latest->path);
}

MonitoredRun MakeMonitoredRun(const TrainFlags& flags, const TrainPlan& plan, const NetInput& input,
                              const CommandLine& line, std::vector<PlanLine> settings) {
  const optim::OptimizerOptions& optimizer = flags.optimizer_options;
  // An interval in seconds that was given wins over a recipe's interval in steps.
  const bool by_time = line.IsGiven("save_summaries_secs") && !line.IsGiven("save_summaries_steps");
  return {.train_dir = flags.run.train_dir,
          .log_dir = flags.run.log_dir,
          .save_summaries_steps = by_time ? 0 : flags.run.save_summaries_steps,
          .save_summaries_secs = OrNever(flags.run.save_summaries_secs),
          .max_steps = plan.max_steps,
          .eval_every = plan.eval_every,
          .input = input,
          .settings = std::move(settings),
          .parameters = {{"model_name", std::string(input.net->name)},
                         {"dataset_name", std::string(input.dataset->name)},
                         {"optimizer", flags.optimizer},
                         {"learning_rate", flags.schedule.learning_rate},
                         {"learning_rate_decay_type", flags.schedule.type},
                         {"weight_decay", optimizer.weight_decay},
                         {"batch_size", static_cast<double>(plan.local_batch)},
                         {"global_batch_size", static_cast<double>(plan.global_batch)},
                         {"seed", static_cast<double>(flags.run.seed)}},
          .flags = line.given_flags(),
          .class_names = NetClassNames(flags.dataset, input)};
}

std::string KerasTraining(const TrainFlags& flags, const optim::LearningRate& rate) {
  const optim::OptimizerEntry& optimizer = optim::FindOptimizer(flags.optimizer);
  return train::MakeKerasTrainingConfig(optimizer.plan(flags.optimizer_options), rate.base());
}

// Makes an endless source of batches. The state of the run gives its seed and its start position.
std::unique_ptr<io::BatchSource> MakeTrainingSource(const TrainFlags& flags, const NetInput& input,
                                                    const RankContext& context, int64_t local_batch,
                                                    const train::RunState& start) {
  io::PipelineOptions options = MakePipelineOptions(flags.dataset, input, context, local_batch);
  SetTraining(input, options);
  options.seed = start.seed;
  options.start_epoch = start.epoch;
  options.start_position = start.position;
  return io::MakePipeline(options);
}

int Run(TrainFlags& flags, const CommandLine& line, const NetInput& input, RankContext& context) {
  flags.dataset = PrepareRecords(flags.dataset, input, context);
  const TrainPlan plan =
      MakeTrainPlan(flags, line, CountSamples(flags.dataset, input, context), context);
  const optim::LearningRate rate(plan.schedule);
  nets::Model model = BuildTrainingModel(flags, input, plan.shape.graph_batch);
  const int64_t parameters = nets::CountParameters(*model.graph).trainable;
  const std::vector<PlanLine> settings =
      DescribePlan(flags, plan, input, context, rate, parameters);
  LogPlan(settings);
  const train::TimeLimit limit = MakeTimeLimit(flags.run);
  train::TrainerOptions options = MakeTrainerOptions(flags, plan, input, line, context);
  options.stop_requested = MakeStopRequest(limit);
  options.keras = train::MakeKerasModel(*model.graph, model.logits, std::string(input.net->name));
  if (options.keras) options.keras->training_config = KerasTraining(flags, rate);
  const auto step = MakeStep(flags, std::move(model), plan.shape, context);
  auto make_source = [&](const train::RunState& start) {
    return MakeTrainingSource(flags, input, context, plan.local_batch, start);
  };
  DeviceOwned<Evaluation> evaluation;
  if (plan.eval_every > 0) {
    // The evaluation may use as much memory as a step does: the step's is not in use meanwhile.
    const size_t max_bytes =
        flags.activation_memory.empty() ? 0 : step->executable().plan().statistics.arena_bytes;
    evaluation = MakeDeviceOwned<Evaluation>(context, EvaluationDataset(flags), input, context,
                                             DivideHostBatch(flags.evaluation.batch_size, context),
                                             &step->store(), max_bytes);
    options.evaluate = [&] { return evaluation->Run(0, options.stop_requested); };
  }
  MonitoredRun monitored = MakeMonitoredRun(flags, plan, input, line, settings);
  monitored.time_left = [limit] { return limit.SecondsLeft(); };
  const auto callbacks = MakeCallbacks(flags.monitoring, monitored, *step, context);
  for (const auto& callback : callbacks) options.callbacks.push_back(callback.get());
  train::Trainer trainer(*step, context.communicator(), rate, make_source, options);
  const ExitCode code = trainer.Run();
  if (code == ExitCode::kOk) {
    collectives::RunRankLocal(context.communicator(), "final model", [&] {
      if (context.rank() == 0) WriteFinalModel(flags.run);
    });
  }
  if (code != ExitCode::kSaved) return static_cast<int>(code);
  SetExitMeaning(ExitCode::kSaved);
  return flags.run.stop_exit_code;
}

}  // namespace

int Train(const Arguments& arguments) {
  train::CatchStopSignals();  // before the ranks connect, so that no signal is lost
  TrainFlags flags;
  CommandLine line("carole train",
                   "Trains a net on a data set, alone or as one rank under mpirun or srun. A run "
                   "continues from the newest checkpoint in --train_dir.",
                   {"carole train --dataset_name=mnist --dataset_dir=DATA --model_name=lenet "
                    "--train_dir=RUN",
                    "mpirun -np 4 carole train --config=resnet.toml --dataset_dir=DATA "
                    "--train_dir=RUN"});
  AddTrainFlags(line, flags);
  if (!ParseWithRecipe(line, arguments, flags.recipe, &Recipe::train)) return 0;
  if (flags.ranks.reproducible && flags.dataset.max_bad_records > 0) {
    throw UsageError(
        fmt::format("[flags] --max_bad_records: got {}, want 0 with --reproducible: which record "
                    "replaces a bad one depends on the number of ranks",
                    flags.dataset.max_bad_records));
  }
  const EvaluationFlags& evaluation = flags.evaluation;
  if (evaluation.keep_best && evaluation.every == 0 && evaluation.epochs_per_eval == 0) {
    throw UsageError(
        "[flags] --keep_best: nothing is evaluated; give --eval_every or --epochs_per_eval as "
        "well");
  }
  for (const char* flag : {"log_dir", "final_model", "keep_best"}) {
    if (flags.run.train_dir.empty() && line.IsGiven(flag))
      LogWarning("flags", "--{}: has no effect: nothing is saved without --train_dir", flag);
  }
  SetMachineFlags(flags.ranks, flags.machine);
  flags.machine.is_training = true;
  return RunOnInput(line, flags.dataset, flags.net, flags.machine,
                    [&](RankContext& context, const NetInput& input) {
                      return Run(flags, line, input, context);
                    });
}

}  // namespace carole::commands
