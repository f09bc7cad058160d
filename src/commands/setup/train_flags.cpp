#include "src/commands/setup/train_flags.h"

#include "io/datasets/datasets.h"
#include "src/commands/cli/recipes.h"
#include "src/commands/setup/activation_memory.h"
#include "src/commands/setup/inputs.h"

namespace carole::commands {
namespace {

// Validates --final_model: returns "" or an error text. A run needs the names model.ckpt* itself.
std::string ValidateFinalModelName(const std::string& name) {
  const bool is_good =
      name.ends_with(".h5") && !name.starts_with("model.ckpt") && name.find('/') == name.npos;
  return name.empty() || is_good ? ""
                                 : name + ": want NAME.h5, without a folder, and not model.ckpt*";
}

void AddLengthFlags(CommandLine& line, RunFlags& flags) {
  line.Group("Run and checkpoints");
  line.AddPath("train_dir,output_dir", flags.train_dir,
               "Folder of checkpoints and event files; a run resumes from it; empty: nothing is "
               "saved.",
               HelpLevel::kBasic);
  line.AddPath("log_dir", flags.log_dir, "Folder of event files; empty: --train_dir.");
  line.AddNonNegative("max_number_of_steps", flags.max_number_of_steps,
                      "Steps after which training ends; 0: no limit.", HelpLevel::kBasic);
  line.AddNonNegative(
      "max_step", flags.max_step,
      "Same as --max_number_of_steps, for the UAI platform; counts if it is above 0 "
      "and the other is not given.");
  line.AddNonNegative("train_epochs", flags.train_epochs,
                      "Epochs after which training ends; 0: no limit; the shorter limit holds.",
                      HelpLevel::kBasic);
  line.Add("max_time", flags.max_time,
           "Seconds (or a number with a unit, such as 90m or 2h) after which the run saves and "
           "ends; 0: no limit.")
      .AllowTimeUnits()
      .NonNegative();
  line.AddNonNegative("stop_before_job_end", flags.stop_before_job_end,
                      "Seconds before the end of a SLURM job (SLURM_JOB_END_TIME) at which the run "
                      "saves and ends.");
  line.Add("stop_exit_code", flags.stop_exit_code,
           "Exit code of a run that saved because of a signal or a time limit.")
      .Between(0, 255);
  line.AddNonNegative("seed", flags.seed,
                      "Seed of weights, order of images, distortions and dropout.");
}

void AddBatchFlags(CommandLine& line, RunFlags& flags) {
  line.Group("Optimization");
  line.AddPositive("batch_size", flags.batch_size, "Images per step on each rank.",
                   HelpLevel::kBasic);
  line.AddNonNegative(
      "train_batch_size", flags.train_batch_size,
      "Images per step on each host, divided among its ranks; 0: see --batch_size.");
}

void AddFileFlags(CommandLine& line, RunFlags& flags) {
  line.Group("Run and checkpoints");
  line.AddNonNegative("save_interval_secs", flags.save_interval_secs,
                      "Seconds between checkpoints; 0: only at the end, before a stop and before "
                      "evaluations.",
                      HelpLevel::kBasic);
  line.AddNonNegative("keep_checkpoints", flags.keep_checkpoints,
                      "Number of checkpoints that are kept, the newest ones; 0: all.");
  line.Add("final_model", flags.final_model,
           "Name in --train_dir for a copy of the last checkpoint when the run has finished.")
      .Satisfies(ValidateWeightsName)
      .Satisfies(ValidateFinalModelName);
  line.Group("Monitoring");
  line.AddNonNegative("log_every_n_steps", flags.log_every_n_steps,
                      "Steps between two lines of the log; 0: none.", HelpLevel::kBasic);
  line.AddNonNegative("save_summaries_steps", flags.save_summaries_steps,
                      "Steps between summaries; 0: see --save_summaries_secs.");
  line.AddNonNegative("save_summaries_secs", flags.save_summaries_secs,
                      "Seconds between summaries; 0: only of the first and the last step.");
}

void AddLossFlags(CommandLine& line, RunFlags& flags) {
  line.Group("Optimization");
  line.Add("label_smoothing", flags.label_smoothing,
           "Share of each label that is spread evenly over all classes.");
  line.Add("loss_scale", flags.loss_scale,
           "Factor of the loss in backward, a power of two; dynamic: halved when gradients "
           "overflow, doubled after 2000 good steps; auto: dynamic with fp16, else 1.");
  line.Add("on_nan", flags.on_nan,
           "What happens when the loss or a gradient is not finite on some rank: the run ends, or "
           "all ranks skip the step (ten skipped in a row end the run).")
      .OneOf({"stop", "skip"});
  line.Add("moving_average_decay", flags.moving_average_decay,
           "Decay of the moving averages of all variables, which checkpoints keep; 0: none.");
  line.Add("sync_replicas", flags.sync_replicas,
           "Let --replicas_to_aggregate count; training is synchronous either way.");
  line.AddPositive("replicas_to_aggregate", flags.replicas_to_aggregate,
                   "Batches that the schedule counts as one step, if it is given together with "
                   "--sync_replicas; else the number of ranks.");
}

void AddFineTuningFlags(CommandLine& line, FineTuningFlags& flags) {
  line.Group("Net");
  line.AddPath("checkpoint_path", flags.checkpoint_path,
               "Initial weights of a new run: file, TensorFlow prefix or folder.",
               HelpLevel::kBasic);
  line.Add("checkpoint_exclude_scopes", flags.exclude_scopes,
           "Name prefixes of variables that are not read from --checkpoint_path.");
  line.Add("trainable_scopes", flags.trainable_scopes,
           "Name prefixes (regular expressions) of variables that are trained; empty: all.");
  line.Add("ignore_missing_vars", flags.ignore_missing_vars,
           "Initialize variables that --checkpoint_path lacks, instead of failing.");
}

void AddEvaluationFlags(CommandLine& line, EvaluationFlags& flags) {
  line.Group("Monitoring");
  line.AddNonNegative("eval_every", flags.every,
                      "Steps between evaluations, with one more at the end; 0: never.",
                      HelpLevel::kBasic);
  line.AddNonNegative("epochs_per_eval", flags.epochs_per_eval,
                      "Epochs between evaluations; 0: see --eval_every.");
  line.Add("eval_split_name", flags.split,
           "Split that is evaluated; empty: the one that is not trained on.");
  line.AddPositive("eval_batch_size", flags.batch_size,
                   "Images that are evaluated at a time on each host.");
  line.Add("keep_best", flags.keep_best,
           "Keep the weights with the best accuracy in train_dir/best.");
}

}  // namespace

void AddTrainFlags(CommandLine& line, TrainFlags& flags) {
  AddDatasetFlags(line, flags.dataset);
  AddInputFlags(line, flags.dataset);
  AddNetFlags(line, flags.net);
  AddFineTuningFlags(line, flags.fine_tuning);
  AddBatchFlags(line, flags.run);
  AddOptimizerFlags(line, flags.optimizer, flags.optimizer_options);
  AddScheduleFlags(line, flags.schedule);
  AddLossFlags(line, flags.run);
  AddLengthFlags(line, flags.run);
  AddFileFlags(line, flags.run);
  AddEvaluationFlags(line, flags.evaluation);
  AddMonitoringFlags(line, flags.monitoring);
  AddMachineFlags(line, flags.machine);
  AddActivationMemoryFlag(line, flags.activation_memory);
  AddCollectiveFlags(line, flags.machine);
  AddRankFlags(line, flags.ranks);
  AddRecipeFlags(line, flags.recipe);
}

std::string EvaluationSplit(const TrainFlags& flags) {
  if (!flags.evaluation.split.empty()) return flags.evaluation.split;
  const std::string& trained = flags.dataset.dataset_split_name;
  std::string split = trained;
  for (const io::SplitEntry& entry : io::FindDataset(flags.dataset.dataset_name).splits) {
    if (entry.name != trained) split = entry.name;
  }
  return split;
}

}  // namespace carole::commands
