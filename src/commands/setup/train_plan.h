// What the flags of carole train come to on the ranks that there are.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/commands/setup/inputs.h"
#include "src/commands/setup/train_flags.h"
#include "src/optim/lr_schedule.h"

namespace carole::commands {

struct TrainPlan {
  int64_t num_samples = 0;  // that are there
  StepShape shape;
  int64_t local_batch = 0;
  int64_t global_batch = 0;
  int64_t max_steps = 0;                // 0: no end
  int64_t eval_every = 0;               // steps; 0: never
  optim::LearningRateOptions schedule;  // by the full data set, where that has a size
};

// Collective. Throws UsageError for batches that the ranks cannot share, ConfigError when machines
// hold different numbers of ranks and the batch is one of machines.
TrainPlan MakeTrainPlan(const TrainFlags& flags, const CommandLine& line, int64_t num_samples,
                        const Job& job);

// The values that hold, for the log and the report: what, value.
using PlanLine = std::pair<std::string, std::string>;
std::vector<PlanLine> DescribePlan(const TrainFlags& flags, const TrainPlan& plan,
                                   const NetInput& input, const Job& job,
                                   const optim::LearningRate& rate, int64_t num_parameters);
void LogPlan(std::span<const PlanLine> lines);

}  // namespace carole::commands
