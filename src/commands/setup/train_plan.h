// The plan of a training run: batch sizes, length, evaluation interval and learning rate schedule,
// as they follow from the configuration, the data set and the number of ranks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/commands/setup/inputs.h"
#include "src/commands/setup/train_config.h"
#include "src/optim/lr_schedule.h"

namespace carole::commands {

struct TrainPlan {
  int64_t num_samples = 0;  // samples that are there
  StepShape shape;
  int64_t local_batch = 0;
  int64_t global_batch = 0;
};

// Returns the plan, and completes what depends on data and ranks in `config`: micro-batches, the
// last step, the interval of evaluations, and the schedule. An epoch of the schedule is the full
// data set, if its size is published. `num_samples`: samples of the split that are there.
// Collective. Throws UsageError for batches that the ranks cannot share, ConfigError if the batch
// is per host and hosts have different numbers of ranks.
TrainPlan MakeTrainPlan(TrainConfig& config, int64_t num_samples, const RankContext& context);

// Describes the plan and the settings of a run for the log and the report: pairs of name and value.
using PlanLine = std::pair<std::string, std::string>;
std::vector<PlanLine> DescribePlan(const TrainConfig& config, const TrainPlan& plan,
                                   const NetInput& input, const RankContext& context,
                                   const optim::LearningRate& rate, int64_t num_parameters);
void LogPlan(std::span<const PlanLine> lines);
// Warns if the data set is so small that the schedule decays the rate in each step.
void WarnOfFastDecay(const TrainConfig& config, const TrainPlan& plan,
                     const optim::LearningRate& rate);

}  // namespace carole::commands
