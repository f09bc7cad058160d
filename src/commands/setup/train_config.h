// Everything that a user decides about a training run, as plain values. TrainFlags fills it from
// the command line (train_flags.h), and each library gets the part that it defines. Defaults and
// meanings are said where an option is defined: here, or in the options of its library. Help texts
// say what an option means for users.
#pragma once

#include <cstdint>
#include <string>

#include "src/commands/flags/flags.h"
#include "src/commands/flags/step_flags.h"
#include "src/commands/setup/callbacks.h"
#include "src/optim/lr_schedule.h"
#include "src/train/loop/time_limit.h"
#include "src/train/loop/trainer.h"
#include "src/train/state/warm_start.h"
#include "src/train/step/step_options.h"

namespace carole::commands {

// The samples of a step: a number for each rank, or for each host, whose ranks divide it.
struct BatchConfig {
  int64_t per_rank = 32;
  int64_t per_host = 0;      // 0: per_rank holds
  bool must_divide = false;  // whether the ranks must divide per_host evenly; else it is rounded
};

// Evaluation during training, in addition to trainer.eval_every and trainer.keep_best.
struct EvaluationConfig {
  double epochs_per_eval = 0;  // 0: trainer.eval_every holds
  std::string split;           // empty: the split that is not trained on
  int64_t batch_size = 100;    // per host
};

struct TrainConfig {
  std::string recipe = "train_image_classifier";
  DataConfig data = MakeDataConfig("imagenet", "train");
  NetConfig net;
  BatchConfig batch;
  optim::LearningRateOptions schedule{.replicas_to_aggregate = 0};  // 0: the number of ranks
  train::StepOptions step = DefaultStepOptions();
  std::string loss_scale = "auto";  // ParseLossScale(); what "auto" means depends on the precision
  int64_t reproducible_shards = 8;
  int64_t quantize_delay = -1;           // steps; negative: the net is not quantized
  std::string batch_norm_decay = "net";  // "net", "auto" or a number; MakeTrainPlan() resolves it
  std::string activation_memory;         // make_step.h
  // TF-Slim takes the seed from the clock; a fixed seed makes every run repeatable.
  train::TrainerOptions trainer{.train_dir = "/tmp/tfmodel/", .seed = 1};
  double train_epochs = 0;  // a limit in addition to trainer.max_number_of_steps; 0: none
  train::TimeLimitOptions time_limit;
  int stop_exit_code = 75;
  bool survivors_checkpoint = true;  // guardians save the state if a rank is lost
  std::string final_model;           // name in train_dir; empty: none
  std::string checkpoint_path;       // initial weights; empty: they are drawn
  train::WarmStartOptions warm_start;
  EvaluationConfig evaluation;
  MonitoringConfig monitoring;
  MachineConfig machine{.is_training = true,
                        .memory_flags = "--batch_size or --accumulation_steps"};
  int ranks = 0;  // of each host; train starts them unless a launcher did; 0: as many as there are

  GivenFlags given_flags;  // as text, for records of the run
};

// Throws UsageError for options that exclude each other or that lack one another.
void Validate(const TrainConfig& config);

}  // namespace carole::commands
