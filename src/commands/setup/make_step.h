// Makes the training step of a rank, within the memory budget of --activation_memory.
#pragma once

#include <memory>
#include <string>

#include "src/commands/cli/command_line.h"
#include "src/commands/setup/rank_context.h"
#include "src/graph/graph.h"
#include "src/train/step/train_step.h"

namespace carole::commands {

// Adds the flag: a number of GiB, or "auto"; the empty default sets no budget.
void AddActivationMemoryFlag(CommandLine& line, std::string& flag);

// Makes a step. Sets what in `options` follows from the rank: its processor, how its devices are
// connected, and the memory limits, which are the same on all ranks. `activation_memory` gives the
// budget of activations. "auto" is this rank's share of the memory that its machine and control
// groups have left, less a reserve and the memory of weights, gradients and slots. Also chooses the
// type in which gradients travel (RankContext::ChooseWireDtype()) and the size of buckets
// (TrainStep::ChooseBucketSize()). Collective. The context must outlive the step. Throws
// ConfigError if nothing is left for activations, and what these two and TrainStep's constructor
// throw.
OwnedUnlessFailing<train::TrainStep> MakeStep(const RankContext& context,
                                              std::unique_ptr<Graph> graph,
                                              train::StepOptions options,
                                              const std::string& activation_memory);

}  // namespace carole::commands
