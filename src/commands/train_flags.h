// The flags of carole train.
#pragma once

#include <cstdint>
#include <string>

#include "src/commands/flags.h"

namespace carole::commands {

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
  std::string activation_memory;
  double label_smoothing = 0;
  bool sync_replicas = false;
  int64_t replicas_to_aggregate = 1;
  uint64_t seed = kDefaultSeed;
};
void AddTrainFlags(CommandLine& line, TrainFlags& flags);

// "momentum, momentum 0.9, weight decay 4e-05"
std::string DescribeOptimizer(const TrainFlags& flags);
// "0.01, times 0.94 every 3750 steps (decay_steps)"
std::string DescribeSchedule(const TrainFlags& flags, const optim::LearningRate& rate);

}  // namespace carole::commands
