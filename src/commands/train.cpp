// carole train: makes the objects that the configuration describes, then runs the trainer.
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <system_error>

#include "collectives/ranks/rank_local_work.h"
#include "collectives/ranks/settings_check.h"
#include "io/checkpoint/checkpoint_folder.h"
#include "io/datasets/datasets.h"
#include "io/weights/open_weights.h"
#include "launch/job/job.h"
#include "launch/machine/cores.h"
#include "nets/summary.h"
#include "src/commands/cli/commands.h"
#include "src/commands/cli/version.h"
#include "src/commands/setup/evaluation.h"
#include "src/commands/setup/make_step.h"
#include "src/commands/setup/raw_data.h"
#include "src/commands/setup/start_ranks.h"
#include "src/commands/setup/train_flags.h"
#include "src/commands/setup/train_plan.h"
#include "src/core/error.h"
#include "src/core/files/bytes.h"
#include "src/core/files/disk.h"
#include "src/core/log.h"
#include "src/core/text/parse_number.h"
#include "src/core/text/quote_for_shell.h"
#include "src/export/keras_model.h"
#include "src/train/loop/stop_signals.h"
#include "src/train/loop/time_limit.h"
#include "src/train/loop/trainer.h"
#include "src/train/state/moving_statistics.h"
#include "src/train/state/warm_start.h"
#include "src/train/survival/guardian.h"

namespace carole::commands {
namespace {

namespace fs = std::filesystem;

// Refuses quantized nets whose evaluation needs ranges that training does not find. The drop path
// of some NASNets scales a sum's inputs in training only, so only evaluation quantizes the sum.
void RequireRangesForEvaluation(const TrainConfig& config, const NetInput& input,
                                const Graph& trained) {
  if (!input.quantization) return;
  std::set<std::string> found;
  for (const Variable& variable : trained.variables()) found.insert(variable.name);
  const nets::Model evaluated =
      nets::BuildModel(*input.net, MakeModelOptions(input, 1, config.net.model));
  for (const Variable& variable : evaluated.graph->variables()) {
    if (found.contains(variable.name)) continue;
    throw UsageError(fmt::format(
        "[flags] {}: cannot quantize {}: training has no {}, which evaluation needs, because drop "
        "path changes this net in training; choose another net",
        Option("quantize_delay"), input.net->name, variable.name));
  }
}

nets::Model BuildTrainingModel(const TrainConfig& config, const NetInput& input,
                               int64_t local_batch) {
  const nets::ModelOptions options = MakeTrainingModelOptions(input, local_batch, config.net.model);
  nets::Model model = nets::BuildModel(*input.net, options);
  RequireRangesForEvaluation(config, input, *model.graph);
  return model;
}

// Returns the time limit of --max_time and of the Slurm job.
train::TimeLimit MakeTimeLimit(train::TimeLimitOptions options) {
  if (const char* end = std::getenv("SLURM_JOB_END_TIME"); end != nullptr) {
    const auto seconds = ParseNumber<int64_t>(end);
    if (!seconds) {
      LogWarning(
          "run",
          "SLURM_JOB_END_TIME: got {}, want seconds since 1970; the run does not stop before "
          "the end of its job",
          end);
    }
    options.job_end = seconds.value_or(0);
  }
  return train::TimeLimit(options);
}

// Returns the time to save after a signal, if the launcher says it or Slurm has a default.
train::GracePeriod FindGracePeriod() {
  constexpr double kKillWait = 30;  // Slurm's default; only scontrol knows the site's value
  if (const char* text = std::getenv(launch::kGraceVariable); text != nullptr)
    return {ParseNumber<double>(text).value_or(0), "carole launch --grace_seconds"};
  if (std::getenv("SLURM_JOB_ID") == nullptr) return {};
  return {kKillWait, "KillWait of Slurm (its default)"};
}

// Returns a function that says whether this rank was asked to stop, by a signal or a time limit.
std::function<bool()> MakeStopRequest(const train::TimeLimit& limit) {
  return [limit, is_over = false, has_said_margin = false]() mutable {
    if (train::StopRequested()) return true;
    if (!has_said_margin && limit.has_measured_margin()) {
      has_said_margin = true;
      LogInfo("run",
              "measured: a save and a step need at most {:.1f} s, with reserve; the run stops "
              "that long before the end of the job",
              limit.JobMargin());
    }
    const std::string reason = limit.Reason();
    if (!reason.empty() && !is_over) LogInfo("run", "{}", reason);
    is_over = !reason.empty();
    return is_over;
  };
}

std::function<void(VariableStore&)> MakeWarmStart(const TrainConfig& config,
                                                  const nets::Model& model) {
  if (config.checkpoint_path.empty()) {
    if (!config.warm_start.exclude_scopes.empty())
      LogInfo("train", "--checkpoint_exclude_scopes: has no effect without --checkpoint_path");
    return {};
  }
  train::WarmStartOptions options = config.warm_start;
  options.classifiers = nets::ClassifierVariables(model);
  return [path = config.checkpoint_path, options](VariableStore& store) {
    const auto reader = io::OpenWeights(path);
    const train::WarmStartReport report = train::WarmStart(*reader, options, store);
    train::LogWarmStartReport(report, reader->path());
  };
}

DataConfig EvaluationData(const TrainConfig& config) {
  DataConfig data = config.data;
  data.pipeline.split = EvaluationSplit(config);
  return data;
}

// Says how good the net is, what a user should know about it, and what to do next. For rank 0.
void LogResult(const TrainConfig& config, const train::RunMetadata& run,
               const std::optional<double>& accuracy, const train::Trainer& trainer) {
  WarnOfYoungStatistics("train", run, 0, trainer.state().step);
  const std::string& train_dir = config.trainer.train_dir;
  const bool has_best = trainer.best_accuracy() >= 0;
  if (accuracy || has_best) {
    LogInfo("train", "accuracy on {}: {}{}", EvaluationSplit(config),
            accuracy ? fmt::format("{:.4f} at the last step", *accuracy) : "not measured now",
            has_best ? fmt::format(", best {:.4f} in {}/best", trainer.best_accuracy(), train_dir)
                     : "");
  }
  if (train_dir.empty()) return;
  const bool best_is_better = has_best && accuracy.value_or(-1) < trainer.best_accuracy();
  const std::string checkpoint = best_is_better ? train_dir + "/best" : train_dir;
  // This line proves that a run is done (LIMITS.md): it follows the last save, and no other command
  // logs it.
  // The accuracy is that of the moving averages.
  const double decay = config.step.moving_average_decay;
  const std::string averages =
      decay != 0 ? fmt::format(" --moving_average_decay={}", decay) : std::string();
  LogInfo("train", "next: carole eval --dataset_dir={} --checkpoint_path={}{}{}",
          QuoteForShell(config.data.pipeline.dataset_dir), QuoteForShell(checkpoint), averages,
          config.net.model.quantization ? " --quantize" : "");
  LogInfo("train", "next: carole predict --checkpoint_path={}{} IMAGE", QuoteForShell(checkpoint),
          averages);
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

// Returns what checkpoints say about the run.
train::RunMetadata MakeRunMetadata(const TrainConfig& config, const TrainPlan& plan,
                                   const NetInput& input, double statistics_decay,
                                   const RankContext& context) {
  train::RunMetadata metadata = MakeDataMetadata(config.data, input);
  const int64_t block = config.data.pipeline.shuffle_block_records;
  metadata.merge(train::RunMetadata{
      {train::kNet, std::string(input.net->name)},
      {train::kPrecision, std::string(Name(config.machine.precision))},
      {train::kVersion, Version()},
      {train::kSplit, config.data.pipeline.split},
      {train::kOptimizer, config.step.optimizer},
      {train::kGlobalBatch, std::to_string(plan.global_batch)},
      {train::kRecordOrder,
       fmt::format("{} records{}", plan.num_samples,
                   block > 0 ? fmt::format(" shuffled in blocks of {}", block) : "")},
      {train::kBatchNormDecay, fmt::format("{}", statistics_decay)},
      {train::kMaxSteps, std::to_string(config.trainer.max_number_of_steps)},
      {train::kFlags, JoinFlags(config.given_flags)}});
  if (config.quantize_delay >= 0)
    metadata[train::kQuantizeDelay] = std::to_string(config.quantize_delay);
  if (config.step.reproducible && !context.backend().is_asynchronous())
    metadata.merge(CheckKernelsMatch(context));
  return metadata;
}

// Whether ranks keep their state for guardians. It is the same on all ranks, even if a rank has no
// guardian. Logs why not, if that may surprise.
bool KeepsSurvivors(const TrainConfig& config, const RankContext& context) {
  if (!config.survivors_checkpoint || config.trainer.train_dir.empty()) return false;
  const bool is_device = context.backend().has_own_memory();
  if (!is_device && !config.trainer.low_memory) return true;
  LogInfo("survivors", "--survivors_checkpoint: has no effect with {}",
          is_device ? "GPUs, whose memory is lost with their rank" : "--activation_memory");
  return false;
}

// Connects this rank's guardian, or ends it if it is not needed. Returns the state to keep; null:
// none.
train::SurvivingState* UseGuardian(train::Guardian* guardian, bool is_needed,
                                   RankContext& context) {
  if (guardian == nullptr) return nullptr;
  if (!is_needed) {
    guardian->Release();
    return nullptr;
  }
  context.SetFailureHooks({.at_once = [guardian](const auto& error) { guardian->Fail(error); },
                           .before_end = [guardian] { guardian->WaitForEnd(); }});
  return &guardian->state();
}

// Copies the newest intact checkpoint to --final_model.
void WriteFinalModel(const TrainConfig& config) {
  const std::string& train_dir = config.trainer.train_dir;
  if (config.final_model.empty() || train_dir.empty()) return;
  const auto latest = io::ReadLatest(train_dir);
  if (!latest) return;
  const fs::path path = fs::path(train_dir) / config.final_model;
  RemoveTemporaryFiles(path.parent_path(), path.filename());
  CopyFile(latest->path, path);
  LogInfo("train", "{} is a copy of {}", path.string(), latest->path);
}

RunDescription DescribeRun(const TrainConfig& config, const TrainPlan& plan, const NetInput& input,
                           std::vector<PlanLine> settings) {
  const train::StepOptions& step = config.step;
  return {.train_dir = config.trainer.train_dir,
          .max_steps = config.trainer.max_number_of_steps,
          .eval_every = config.trainer.eval_every,
          .input = input,
          .settings = std::move(settings),
          .parameters = {{"model_name", std::string(input.net->name)},
                         {"dataset_name", std::string(input.dataset->name)},
                         {"optimizer", step.optimizer},
                         {"learning_rate", config.schedule.learning_rate},
                         {"learning_rate_decay_type", config.schedule.type},
                         {"weight_decay", step.optimizer_options.weight_decay},
                         {"batch_size", static_cast<double>(plan.local_batch)},
                         {"global_batch_size", static_cast<double>(plan.global_batch)},
                         {"seed", static_cast<double>(config.trainer.seed)}},
          .flags = config.given_flags,
          .class_names = NetClassNames(config.data, input)};
}

// A quantized net is described as the net that it is without quantization.
std::optional<io::KerasModel> DescribeForKeras(const TrainConfig& config, const NetInput& input,
                                               const nets::Model& trained,
                                               const optim::LearningRate& rate) {
  NetInput plain = input;
  plain.quantization.reset();
  nets::Model unquantized;
  if (input.quantization) unquantized = BuildTrainingModel(config, plain, 1);
  const nets::Model& model = input.quantization ? unquantized : trained;
  auto keras = train::MakeKerasModel(*model.graph, model.logits, std::string(input.net->name));
  if (!keras) return keras;
  const optim::OptimizerEntry& optimizer = optim::FindOptimizer(config.step.optimizer);
  keras->training_config =
      train::MakeKerasTrainingConfig(optimizer.plan(config.step.optimizer_options), rate.base());
  return keras;
}

// Makes an endless source of batches. The state of the run gives its seed and its start position.
std::unique_ptr<io::BatchSource> MakeTrainingSource(const TrainConfig& config,
                                                    const NetInput& input,
                                                    const RankContext& context, int64_t local_batch,
                                                    const train::RunState& start) {
  io::PipelineOptions options = MakePipelineOptions(config.data, input, context, local_batch);
  SetTraining(input, options);
  options.seed = start.seed;
  options.start_epoch = start.epoch;
  options.start_position = start.position;
  return io::MakePipeline(options);
}

// Throws DataError if the evaluated split has no shards, as if --dataset_dir names only those of
// the training split. Collective.
void RequireEvaluationShards(const DataConfig& data, const NetInput& input,
                             const RankContext& context) {
  collectives::RunRankLocal(context.communicator(), "shards of the evaluation", [&] {
    try {
      (void)io::FindShards(*input.dataset, data.pipeline.split, data.pipeline.dataset_dir);
    } catch (const DataError& error) {
      std::error_code error_of_list;  // a list of files may be too long for a path
      const bool is_folder = fs::is_directory(data.pipeline.dataset_dir, error_of_list);
      throw DataError(fmt::format(
          "{}; {}set --eval_every=0", error.what(),
          is_folder ? "or " : fmt::format("name the shards of {}, too, or ", data.pipeline.split)));
    }
  });
}

// Makes the evaluation during training. It may use as much memory as a step does: the step's is not
// in use meanwhile.
OwnedUnlessFailing<Evaluation> MakeEvaluation(const TrainConfig& config, const NetInput& input,
                                              const RankContext& context, train::TrainStep& step) {
  const std::string& trained = config.data.pipeline.split;
  if (context.is_chief() && EvaluationSplit(config) == trained) {
    LogWarning("eval", "{}: evaluating the images that are trained on ({})",
               config.evaluation.split.empty()
                   ? config.data.pipeline.dataset_dir + ": has no other split"
                   : Option("eval_split_name", trained),
               trained);
  }
  const DataConfig data = EvaluationData(config);
  RequireEvaluationShards(data, input, context);
  const size_t max_bytes =
      config.activation_memory.empty() ? 0 : step.executable().plan().statistics.arena_bytes;
  return MakeOwnedUnlessFailing<Evaluation>(context, data, input, context,
                                            DivideHostBatch(config.evaluation.batch_size, context),
                                            &step.store(), max_bytes);
}

// Says what is faster than strict fp32 on a GPU, unless a precision was asked for.
void AdviseTf32(const TrainConfig& config, const RankContext& context) {
  if (!context.backend().gpu_stream() || config.machine.precision != Precision::kFp32 ||
      config.given_flags.contains("precision"))
    return;
  LogInfo("run",
          "fp32 is strict on GPUs: --precision=tf32 is faster, and bf16 faster still (compute "
          "capability 8.0 or newer)");
}

// TF-Slim's default is imagenet, also for data of another form. labels.txt may name some of its
// classes only, so this is no error.
void WarnOfOtherLabels(const DataConfig& data, const io::DatasetEntry& dataset) {
  const int listed = io::NumLabels(data.pipeline.dataset_dir);
  // Lists of ImageNet may leave out the class of the background.
  if (dataset.num_classes == 0 || listed == 0 || std::abs(listed - dataset.num_classes) <= 1)
    return;
  LogWarning("run",
             "labels.txt in {} lists {} classes, but {} has {}, and so has the net; for a data set "
             "of your own choose {}",
             data.pipeline.dataset_dir, listed, dataset.name, dataset.num_classes,
             Option("dataset_name", "folder"));
}

int Run(TrainConfig& config, const NetInput& input, RankContext& context,
        train::Guardian* guardian) {
  config.data = PrepareRecords(config.data, input, context);
  const TrainPlan plan = MakeTrainPlan(config, CountSamples(config.data, input, context), context);
  const optim::LearningRate rate(config.schedule);
  nets::Model model = BuildTrainingModel(config, input, plan.shape.graph_batch);
  const int64_t parameters = nets::CountParameters(*model.graph).trainable;
  const std::vector<PlanLine> settings =
      DescribePlan(config, plan, input, context, rate, parameters);
  LogPlan(settings);
  if (context.is_chief()) WarnOfFastDecay(config, plan, rate);
  if (context.is_chief()) WarnOfOtherLabels(config.data, *input.dataset);
  AdviseTf32(config, context);
  train::SaveClock save_clock;
  train::TimeLimitOptions time_limit = config.time_limit;
  time_limit.clock = &save_clock;
  const train::TimeLimit limit = MakeTimeLimit(time_limit);
  train::TrainerOptions options = config.trainer;
  options.save_clock = &save_clock;
  options.saves.grace = FindGracePeriod();
  options.attributes =
      MakeRunMetadata(config, plan, input, train::StatisticsDecay(*model.graph), context);
  options.warm_start = MakeWarmStart(config, model);
  options.stop_requested = MakeStopRequest(limit);
  options.keras = DescribeForKeras(config, input, model, rate);
  options.keeps_survivors = KeepsSurvivors(config, context);
  options.work_dir = config.data.pipeline.work_dir;
  config.step.survivors = UseGuardian(guardian, options.keeps_survivors, context);
  const auto step =
      MakeStep(context, std::move(model.graph), config.step, config.activation_memory);
  auto make_source = [&](const train::RunState& start) {
    return MakeTrainingSource(config, input, context, plan.local_batch, start);
  };
  OwnedUnlessFailing<Evaluation> evaluation;
  std::optional<double> accuracy;
  if (options.eval_every > 0) {
    evaluation = MakeEvaluation(config, input, context, *step);
    options.evaluate = [&] {
      auto metrics = evaluation->Run(0, options.stop_requested);
      if (metrics) accuracy = metrics->accuracy();
      return metrics;
    };
  }
  RunDescription description = DescribeRun(config, plan, input, settings);
  description.time_left = [limit] { return limit.SecondsLeft(); };
  const auto callbacks = MakeCallbacks(config.monitoring, description, *step, context);
  for (const auto& callback : callbacks) options.callbacks.push_back(callback.get());
  train::Trainer trainer(*step, context.communicator(), context.diagnostics(), rate, make_source,
                         options);
  const ExitCode code = trainer.Run();
  if (code == ExitCode::kOk) {
    collectives::RunRankLocal(context.communicator(), "final model", [&] {
      if (context.rank() == 0) WriteFinalModel(config);
    });
    if (context.is_chief()) LogResult(config, options.attributes, accuracy, trainer);
  }
  if (code != ExitCode::kSaved) return static_cast<int>(code);
  SetExitMeaning(ExitCode::kSaved);
  return config.stop_exit_code;
}

}  // namespace

int Train(const Arguments& arguments) {
  train::CatchStopSignals();  // before the ranks connect, so that no signal is lost
  TrainConfig config;
  CommandLine line("carole train",
                   "Trains a net on a data set: alone, on --ranks ranks of this machine, or as one "
                   "rank under mpirun or srun. A run "
                   "continues from the newest checkpoint in --train_dir.",
                   {"carole train --recipe=own_images --dataset_dir=DATA "
                    "--train_dir=RUN",
                    "carole train --ranks=4 --config=resnet.toml --dataset_dir=DATA "
                    "--train_dir=RUN"});
  TrainFlags flags(line, config);
  if (!flags.Parse(arguments)) return 0;
  StartRanks(config.ranks, arguments);
  const bool may_keep = config.survivors_checkpoint && !config.trainer.train_dir.empty();
  const auto guardian = may_keep ? train::Guardian::Start() : nullptr;
  const int code = RunOnInput(line, config.data, config.net, config.machine,
                              [&](RankContext& context, const NetInput& input) {
                                return Run(config, input, context, guardian.get());
                              });
  if (guardian) guardian->Release();
  return code;
}

}  // namespace carole::commands
