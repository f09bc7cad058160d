#include "src/commands/setup/train_flags.h"

#include "io/datasets/datasets.h"
#include "src/commands/cli/recipes.h"
#include "src/commands/setup/activation_memory.h"
#include "src/commands/setup/inputs.h"

namespace carole::commands {
namespace {

// Names that a run needs for itself, or that lie elsewhere.
std::string RefuseNameOfRun(const std::string& name) {
  const bool is_good =
      name.ends_with(".h5") && !name.starts_with("model.ckpt") && name.find('/') == name.npos;
  return name.empty() || is_good
             ? ""
             : name + ": want NAME.h5, without a folder and other than model.ckpt-STEP.h5";
}

void AddLengthFlags(CommandLine& line, RunFlags& flags) {
  line.Group("Run");
  line.Add("train_dir,output_dir", flags.train_dir,
           "folder of checkpoints and event files; a run goes on from there; empty: saves nothing");
  line.Add("log_dir", flags.log_dir, "folder of event files; the default is train_dir");
  line.AddPositive("batch_size", flags.batch_size, "images of a step, of each rank");
  line.AddNonNegative(
      "train_batch_size", flags.train_batch_size,
      "images of a step, of each machine: its ranks share them; 0: see --batch_size");
  line.AddNonNegative("max_number_of_steps", flags.max_number_of_steps, "0: forever");
  line.AddNonNegative(
      "max_step", flags.max_step,
      "the same, as the platform passes it: counts above 0 and where the other is not given");
  line.AddNonNegative("train_epochs", flags.train_epochs,
                      "passes over the data; 0: see above; of both the shorter");
  line.Add("max_time", flags.max_time, "saves and ends after so many seconds, or 90m, 2h; 0: never")
      ->transform(CLI::AsNumberWithUnit(
                      std::map<std::string, double>{{"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}})
                      .description(""))
      ->check(CLI::NonNegativeNumber);
  line.AddNonNegative(
      "stop_before_job_end", flags.stop_before_job_end,
      "seconds before the end of a SLURM job (SLURM_JOB_END_TIME) that it saves and ends");
  line.Add("stop_exit_code", flags.stop_exit_code,
           "when the run saved because of a signal or the time")
      ->check(CLI::Range(0, 255));
  line.AddNonNegative("seed", flags.seed, "of weights, order of images, distortions and dropout");
}

void AddFileFlags(CommandLine& line, RunFlags& flags) {
  line.AddNonNegative("log_every_n_steps", flags.log_every_n_steps, "a line in the log; 0: none");
  line.AddNonNegative("save_summaries_steps", flags.save_summaries_steps,
                      "between summaries; 0: by time");
  line.AddNonNegative("save_summaries_secs", flags.save_summaries_secs,
                      "between summaries; 0: of the first step and the last one only");
  line.AddNonNegative("save_interval_secs", flags.save_interval_secs,
                      "between checkpoints; 0: only when it ends, stops or evaluates");
  line.AddNonNegative("keep_checkpoints", flags.keep_checkpoints, "newest ones that stay; 0: all");
  line.Add("final_model", flags.final_model,
           "name in train_dir of a copy of the last checkpoint, once the run has finished")
      ->check(RefuseWeightsName)
      ->check(RefuseNameOfRun);
}

void AddLossFlags(CommandLine& line, RunFlags& flags) {
  line.Group("Loss");
  line.Add("label_smoothing", flags.label_smoothing,
           "share of the label that is spread over all classes");
  line.Add(
      "loss_scale", flags.loss_scale,
      "of the loss in backward: a power of two; dynamic: halved when gradients overflow, doubled "
      "after 2000 good steps; auto: dynamic with fp16, else 1");
  line.Add("on_nan", flags.on_nan,
           "stop or skip: what to do with a step whose loss or gradients are not finite on some "
           "rank; no rank applies it; ten skipped in a row end the run")
      ->check(CLI::IsMember({"stop", "skip"}));
  line.Add("moving_average_decay", flags.moving_average_decay,
           "of the averages of all variables, which are kept beside them; 0: none");
  line.AddBool("sync_replicas", flags.sync_replicas,
               "training is always synchronous, and an epoch of the schedule one of all ranks");
  line.AddPositive(
      "replicas_to_aggregate", flags.replicas_to_aggregate,
      "with --sync_replicas, and only where it is given: counts in the schedule instead of the "
      "ranks");
}

void AddFineTuningFlags(CommandLine& line, FineTuningFlags& flags) {
  const auto without_blanks = [](std::string scope) { return CLI::detail::trim(scope); };
  line.Group("Fine-tuning");
  line.Add("checkpoint_path", flags.checkpoint_path,
           "weights that a new run starts with: a file, a TensorFlow prefix, or a folder");
  line.AddList("checkpoint_exclude_scopes", flags.exclude_scopes,
               "beginnings of names that are not read")
      ->transform(without_blanks, "", "");
  line.AddList("trainable_scopes", flags.trainable_scopes,
               "beginnings of names that are trained (regular expressions); empty: all")
      ->transform(without_blanks, "", "");
  line.AddBool("ignore_missing_vars", flags.ignore_missing_vars,
               "variables that the file lacks begin anew");
}

void AddEvaluationFlags(CommandLine& line, EvaluationFlags& flags) {
  line.Group("Evaluation while training");
  line.AddNonNegative("eval_every", flags.every, "steps, and at the end; 0: never");
  line.AddNonNegative("epochs_per_eval", flags.epochs_per_eval, "the same in epochs");
  line.Add("eval_split_name", flags.split, "the default is the one that is not trained on");
  line.AddPositive("eval_batch_size", flags.batch_size, "images at a time, of each machine");
  line.AddBool("keep_best", flags.keep_best, "the most accurate weights stay in train_dir/best");
}

}  // namespace

void AddTrainFlags(CommandLine& line, TrainFlags& flags) {
  AddDatasetFlags(line, flags.dataset);
  AddInputFlags(line, flags.dataset);
  AddNetFlags(line, flags.net);
  AddLengthFlags(line, flags.run);
  AddFileFlags(line, flags.run);
  AddLossFlags(line, flags.run);
  AddOptimizerFlags(line, flags.optimizer, flags.optimizer_options);
  AddScheduleFlags(line, flags.schedule);
  AddFineTuningFlags(line, flags.fine_tuning);
  AddEvaluationFlags(line, flags.evaluation);
  AddMonitoringFlags(line, flags.watch);
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
