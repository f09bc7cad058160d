// How several flags become one option.
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
//
// Length.
//   --max_number_of_steps    a limit in steps; --max_step is the same as the UAI platform passes
//                            it, and 0 there means "not set"
//   --train_epochs           a limit in epochs
//   both given, or neither   the shorter limit (train_plan.cpp)
//   one given                it wins over the other, which can only be a recipe's
// Evaluation follows the same idea: --eval_every in steps wins over --epochs_per_eval; giving
// --eval_every=0 turns off evaluation that only a recipe asked for. Summaries, too: given seconds
// win over a recipe's steps.
//
// Replicas. --replicas_to_aggregate counts only with --sync_replicas, and only if it is given, so
// that old command lines decay as often as they did.
#include "src/commands/setup/train_flags.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "io/datasets/datasets.h"
#include "src/commands/cli/recipes.h"
#include "src/commands/setup/evaluation.h"
#include "src/commands/setup/inputs.h"
#include "src/commands/setup/make_step.h"
#include "src/core/error.h"
#include "src/core/log.h"
#include "src/core/text/parse_number.h"

namespace carole::commands {
namespace {

// Validates --final_model: returns "" or an error text. A run needs the names model.ckpt* itself.
std::string ValidateFinalModelName(const std::string& name) {
  const bool is_good =
      name.ends_with(".h5") && !name.starts_with("model.ckpt") && name.find('/') == name.npos;
  return name.empty() || is_good ? ""
                                 : name + ": want NAME.h5, without a folder, and not model.ckpt*";
}

// Validates --batch_norm_decay: returns "" or an error text.
std::string ValidateBatchNormDecay(const std::string& text) {
  if (text == "net" || text == "auto") return "";
  const auto decay = ParseNumber<double>(text);
  const bool is_good = decay && *decay > 0 && *decay < 1;
  return is_good ? ""
                 : fmt::format("got {}, want net, auto, or a number above 0 and below 1", text);
}

// Validates --save_interval_secs: returns "" or an error text.
std::string ValidateSaveInterval(const std::string& text) {
  const auto seconds = ParseNumber<double>(text);
  const bool is_good = text == "auto" || (seconds && *seconds >= 0);
  return is_good ? "" : fmt::format("got {}, want auto or a number of at least 0", text);
}

// An interval of 0 seconds means never, as in TensorFlow's Supervisor.
void ReplaceZeroByNever(double& seconds) {
  if (seconds <= 0) seconds = std::numeric_limits<double>::infinity();
}

}  // namespace

TrainFlags::TrainFlags(CommandLine& line, TrainConfig& config) : line_(line), config_(config) {
  AddDatasetFlags(line, config.data);
  AddInputFlags(line, config.data);
  AddNetFlags(line, config.net);
  AddFineTuningFlags();
  AddBatchFlags();
  AddOptimizerFlags(line, config.step.optimizer, config.step.optimizer_options);
  AddScheduleFlags(line, config.schedule);
  AddLossFlags();
  AddRunFlags();
  AddFileFlags();
  AddEvaluationFlags();
  AddMonitoringFlags(line, config.monitoring, trace_steps_);
  AddRankFlags();
  AddMachineFlags(line, config.machine);
  AddActivationMemoryFlag(line, config.activation_memory);
  AddCollectiveFlags(line, config.machine);
  AddStepFlags(line, config.step, config.reproducible_shards);
  AddRecipeFlags(line, config.recipe);
}

void TrainFlags::AddRunFlags() {
  train::TrainerOptions& trainer = config_.trainer;
  line_.Group("Run and checkpoints");
  line_.AddPath("train_dir,output_dir", trainer.train_dir,
                "Folder of checkpoints and event files; a run resumes from it; empty: nothing is "
                "saved.",
                HelpLevel::kBasic);
  line_.AddNonNegative("max_number_of_steps", trainer.max_number_of_steps,
                       "Steps after which training ends; 0: no limit.", HelpLevel::kBasic);
  line_.AddNonNegative(
      "max_step", max_step_,
      "Same as --max_number_of_steps, for the UAI platform; counts if it is above 0 "
      "and the other is not given.");
  line_.AddNonNegative("train_epochs", config_.train_epochs,
                       "Epochs after which training ends; 0: no limit.", HelpLevel::kBasic);
  line_
      .AddNonNegative(
          "max_time", config_.time_limit.max_seconds,
          "Seconds (or a number with a unit, such as 90m or 2h) after which the run saves and "
          "ends; 0: no limit.")
      .AllowTimeUnits();
  line_.AddNonNegative("stop_before_job_end", config_.time_limit.margin_seconds,
                       "Seconds before the end of a SLURM job (SLURM_JOB_END_TIME) at which the "
                       "run saves and ends. If it is not given, the run measures how long that "
                       "takes, and this is only the first guess.");
  line_
      .Add("stop_exit_code", config_.stop_exit_code,
           "Exit code of a run that saved because of a signal or a time limit.")
      .Between(0, 255);
  line_.AddNonNegative("seed", trainer.seed,
                       "Seed of weights, order of images, distortions and dropout.");
}

void TrainFlags::AddRankFlags() {
  line_.Group("Ranks and devices");
  line_.AddNonNegative("ranks,num_clones,num_gpus", config_.ranks,
                       "Ranks to start on this machine; under mpirun or srun, the number of ranks "
                       "that must be there; 0: any number.",
                       HelpLevel::kBasic);
  line_.Add("clone_on_cpu", clone_on_cpu_, "Same as --backend=cpu.")
      .SetGroup("Flags of other programs");
}

void TrainFlags::AddBatchFlags() {
  line_.Group("Optimization");
  line_.AddPositive("batch_size", config_.batch.per_rank, "Images per step on each rank.",
                    HelpLevel::kBasic);
  line_.AddNonNegative(
      "train_batch_size", config_.batch.per_host,
      "Images per step on each host, divided among its ranks; 0: see --batch_size.");
}

void TrainFlags::AddFileFlags() {
  train::TrainerOptions& trainer = config_.trainer;
  line_.Group("Run and checkpoints");
  line_
      .Add("save_interval_secs", save_interval_,
           "Seconds between checkpoints, or auto; 0: only at the end, before a stop and before "
           "evaluations.",
           HelpLevel::kBasic)
      .Satisfies(ValidateSaveInterval);
  line_
      .AddPositive("mean_time_between_failures", trainer.saves.mean_time_between_failures,
                   "Seconds (or a number with a unit, such as 30d) between two failures of one "
                   "host. --save_interval_secs=auto chooses the interval that loses the least "
                   "time, by this and the measured cost of a save.")
      .AllowTimeUnits();
  line_.AddNonNegative("keep_checkpoints", trainer.keep_checkpoints,
                       "Number of checkpoints that are kept, the newest ones; 0: all.");
  line_.Add("survivors_checkpoint", config_.survivors_checkpoint,
            "If a rank is lost, save the last step from the memory of another rank, in --work_dir "
            "if --train_dir cannot be written there. For CPUs; a process next to each rank does "
            "it.");
  line_
      .Add("final_model", config_.final_model,
           "Name in --train_dir for a copy of the last checkpoint when the run has finished.")
      .Satisfies(ValidateWeightsName)
      .Satisfies(ValidateFinalModelName);
  line_.Group("Monitoring");
  line_.AddNonNegative("log_every_n_steps", trainer.log_every_n_steps,
                       "Steps between two lines of the log; 0: none.", HelpLevel::kBasic);
}

void TrainFlags::AddLossFlags() {
  line_.Group("Optimization");
  line_
      .Add("batch_norm_decay", config_.batch_norm_decay,
           "Decay of the moving statistics of batch norm, with which a net is evaluated; net: "
           "that of the net in TF-Slim; auto: one that fits the length of the run.")
      .Satisfies(ValidateBatchNormDecay);
  line_.Add("quantize_delay", config_.quantize_delay,
            "Train for 8-bit integers: from this step on, round weights and activations as these "
            "integers will (0: from the first step); below 0: never.");
  line_.Add("label_smoothing", config_.net.model.label_smoothing,
            "Share of each label that is spread evenly over all classes.");
  line_.Add("loss_scale", config_.loss_scale,
            "Factor of the loss in backward, a power of two; dynamic: halved when gradients "
            "overflow, doubled after 2000 good steps; auto: dynamic with fp16, else 1.");
  line_.AddChoice<train::OnNan>(
      "on_nan", config_.trainer.on_nan,
      {{"stop", train::OnNan::kStop}, {"skip", train::OnNan::kSkip}},
      "What happens when the loss or a gradient is not finite on some rank: the run ends, or "
      "all ranks skip the step (ten skipped in a row end the run).");
  line_.Add("moving_average_decay", config_.step.moving_average_decay,
            "Decay of the moving averages of all variables, which checkpoints keep; 0: none.");
  line_.Add("sync_replicas", sync_replicas_,
            "Let --replicas_to_aggregate count; training is synchronous either way.");
  line_.AddPositive("replicas_to_aggregate", replicas_to_aggregate_,
                    "Batches that the schedule counts as one step, if it is given together with "
                    "--sync_replicas; else the number of ranks.");
}

void TrainFlags::AddFineTuningFlags() {
  line_.Group("Net");
  line_.AddPath("checkpoint_path", config_.checkpoint_path,
                "Initial weights of a new run: file, TensorFlow prefix or folder.",
                HelpLevel::kBasic);
  line_.Add("checkpoint_exclude_scopes", config_.warm_start.exclude_scopes,
            "Name prefixes of variables that are not read from --checkpoint_path. A last layer for "
            "another number of classes is left out anyway.");
  line_.Add("trainable_scopes", config_.step.trainable_scopes,
            "Name prefixes (regular expressions) of variables that are trained; empty: all.");
  line_.Add("ignore_missing_vars", config_.warm_start.ignore_missing,
            "Initialize variables that --checkpoint_path lacks, instead of failing.");
}

void TrainFlags::AddEvaluationFlags() {
  line_.Group("Monitoring");
  line_.AddNonNegative("eval_every", config_.trainer.eval_every,
                       "Steps between evaluations, with one more at the end; 0: never.",
                       HelpLevel::kBasic);
  line_.AddNonNegative("epochs_per_eval", config_.evaluation.epochs_per_eval,
                       "Epochs between evaluations; 0: see --eval_every.");
  line_.Add("eval_split_name", config_.evaluation.split,
            "Split that is evaluated; empty: the one that is not trained on.");
  line_.AddPositive("eval_batch_size", config_.evaluation.batch_size,
                    "Images that are evaluated at a time on each host.");
  line_.Add("keep_best", config_.trainer.keep_best,
            "Keep the weights with the best accuracy in train_dir/best.");
}

bool TrainFlags::Parse(const std::vector<std::string>& arguments) {
  if (!ParseWithRecipe(line_, arguments, config_.recipe, &Recipe::train)) return false;
  ResolveBackend();
  ResolveBatch();
  ResolveBatchNorm();
  ResolvePreprocessing();
  ResolveLength();
  ResolveEvaluation();
  ResolveSaves();
  ResolveIntervals();
  monitoring::ParseTraceSteps(trace_steps_, config_.monitoring.trace);
  config_.trainer.max_bad_records = config_.data.pipeline.max_bad_records;
  config_.trainer.low_memory = !config_.activation_memory.empty();
  config_.step.loss_scale = train::ParseLossScale(config_.loss_scale, config_.machine.precision);
  config_.net.model.keep_end_points = config_.monitoring.summaries.histograms;
  if (sync_replicas_ && line_.IsGiven("replicas_to_aggregate"))
    config_.schedule.replicas_to_aggregate = replicas_to_aggregate_;
  if (config_.quantize_delay >= 0)
    config_.net.model.quantization = nets::QuantizationOptions{.delay = config_.quantize_delay};
  config_.given_flags = line_.given_flags();
  Validate(config_);
  ResolveStep(config_.step, config_.machine);
  return true;
}

void TrainFlags::ResolveBackend() {
  std::string& backend = config_.machine.backend;
  if (!clone_on_cpu_) return;
  if (backend == "cuda")
    throw UsageError("[flags] --clone_on_cpu, --backend=cuda: both given; give only one of them");
  if (backend == "auto") backend = "cpu";
}

void TrainFlags::ResolveBatch() {
  BatchConfig& batch = config_.batch;
  batch.must_divide = line_.IsGiven("train_batch_size");
  if (!line_.IsGiven("batch_size")) return;
  if (batch.must_divide)
    throw UsageError("[flags] --batch_size, --train_batch_size: both given; give only one of them");
  batch.per_host = 0;
}

// imagenet_main had this flag without effect, so its jobs keep the decay that they were trained
// with. It took numbers only: "auto" comes from a user of this program.
void TrainFlags::ResolveBatchNorm() {
  const bool is_number = ParseNumber<double>(config_.batch_norm_decay).has_value();
  if (config_.recipe != "imagenet_main" || !is_number) return;
  LogInfo("flags", "--batch_norm_decay: imagenet_main ignored it as well; the net uses 0.997");
  config_.batch_norm_decay = "net";
}

// The preprocessing of small nets takes a piece of the image instead of resizing it, which suits
// MNIST, but shows hardly anything of a photo.
void TrainFlags::ResolvePreprocessing() {
  constexpr int64_t kSmall = 100;  // pixels
  std::string& preprocessing = config_.data.preprocessing_name;
  const nets::NetEntry* const net = nets::TryFindNet(config_.net.model_name);
  if (config_.recipe == "own_images" && preprocessing.empty() && net && net->image_size < kSmall)
    preprocessing = "inception";
}

void TrainFlags::ResolveLength() {
  int64_t& max_steps = config_.trainer.max_number_of_steps;
  double& epochs = config_.train_epochs;
  const bool steps_given = line_.IsGiven("max_number_of_steps") || max_step_ > 0;
  const bool epochs_given = line_.IsGiven("train_epochs");
  if (max_step_ > 0 && !line_.IsGiven("max_number_of_steps")) max_steps = max_step_;
  if (epochs_given && epochs == 0 && max_steps == 0) {
    throw UsageError(
        "[flags] --train_epochs: got 0, want more than 0; to train without an end, give neither "
        "it nor --max_number_of_steps");
  }
  if (max_steps == 0 || epochs == 0 || steps_given == epochs_given) return;
  if (steps_given) {
    epochs = 0;
  } else {
    max_steps = 0;
  }
}

void TrainFlags::ResolveEvaluation() {
  const bool never = line_.IsGiven("eval_every") && !line_.IsGiven("epochs_per_eval");
  if (config_.trainer.eval_every > 0 || never) config_.evaluation.epochs_per_eval = 0;
  if (never && !line_.IsGiven("keep_best")) config_.trainer.keep_best = false;
}

void TrainFlags::ResolveSaves() {
  train::SaveScheduleOptions& saves = config_.trainer.saves;
  saves.is_auto = save_interval_ == "auto";
  if (!saves.is_auto) {
    saves.interval_secs = ParseNumber<double>(save_interval_).value();
    ReplaceZeroByNever(saves.interval_secs);
  }
  if (!saves.is_auto && line_.IsGiven("mean_time_between_failures"))
    LogWarning("flags",
               "--mean_time_between_failures: has no effect without "
               "--save_interval_secs=auto");
  config_.time_limit.is_margin_fixed = line_.IsGiven("stop_before_job_end");
}

void TrainFlags::ResolveIntervals() {
  monitoring::SummaryOptions& summaries = config_.monitoring.summaries;
  if (line_.IsGiven("save_summaries_secs") && !line_.IsGiven("save_summaries_steps"))
    summaries.every_steps = 0;
  ReplaceZeroByNever(summaries.every_secs);
  for (const char* flag : {"log_dir", "final_model", "keep_best"}) {
    if (config_.trainer.train_dir.empty() && line_.IsGiven(flag))
      LogWarning("flags", "--{}: has no effect: nothing is saved without --train_dir", flag);
  }
}

std::string EvaluationSplit(const TrainConfig& config) {
  if (!config.evaluation.split.empty()) return config.evaluation.split;
  const io::PipelineOptions& data = config.data.pipeline;
  return DefaultEvaluationSplit(io::FindDataset(config.data.dataset_name), data.dataset_dir,
                                data.split);
}

}  // namespace carole::commands
