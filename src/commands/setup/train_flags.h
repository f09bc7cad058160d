// The flags of `carole train`. Their meaning is said in the help texts (train_flags.cpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/commands/flags/flags.h"
#include "src/commands/flags/rank_flags.h"
#include "src/commands/setup/callbacks.h"

namespace carole::commands {

struct RunFlags {
  std::string train_dir = "/tmp/tfmodel/";
  std::string log_dir;
  int64_t batch_size = 32;
  int64_t train_batch_size = 0;  // per host; 0: batch_size holds
  int64_t max_number_of_steps = 0;
  int64_t max_step = 0;  // 0: max_number_of_steps holds
  double train_epochs = 0;
  double max_time = 0;              // seconds
  double stop_before_job_end = 60;  // seconds
  int stop_exit_code = 75;
  std::string on_nan = "stop";
  int64_t log_every_n_steps = 10;
  int64_t save_summaries_steps = 0;
  double save_summaries_secs = 600;
  double save_interval_secs = 600;
  int keep_checkpoints = 5;
  std::string final_model;
  double label_smoothing = 0;
  std::string loss_scale = "auto";
  double moving_average_decay = 0;
  bool sync_replicas = false;
  int64_t replicas_to_aggregate = 1;
  uint64_t seed = 1;  // TF-Slim takes it from the clock; a fixed seed makes every run repeatable
};

struct FineTuningFlags {
  std::string checkpoint_path;
  std::vector<std::string> exclude_scopes;
  std::vector<std::string> trainable_scopes;
  bool ignore_missing_vars = false;
};

// Evaluation during training.
struct EvaluationFlags {
  int64_t every = 0;           // steps
  double epochs_per_eval = 0;  // the same in epochs
  std::string split;           // empty: the split that is not trained on
  int64_t batch_size = 100;    // per host
  bool keep_best = false;
};

struct TrainFlags {
  std::string recipe = "train_image_classifier";
  DatasetFlags dataset;
  NetFlags net;
  RunFlags run;
  std::string optimizer = "rmsprop";
  optim::OptimizerOptions optimizer_options;
  optim::LearningRateOptions schedule;
  FineTuningFlags fine_tuning;
  EvaluationFlags evaluation;
  MonitoringFlags monitoring;
  MachineFlags machine;
  RankFlags ranks;
  std::string activation_memory;
};
void AddTrainFlags(CommandLine& line, TrainFlags& flags);

// Returns the split that is evaluated: the named one, else the data set's split that is not trained
// on. Throws UsageError for an unknown data set.
std::string EvaluationSplit(const TrainFlags& flags);

}  // namespace carole::commands
