// --activation_memory: the memory budget of a step's activations.
#pragma once

#include <string>

#include "src/commands/cli/command_line.h"
#include "src/commands/setup/rank_context.h"
#include "src/graph/graph.h"
#include "src/train/step/step_options.h"

namespace carole::commands {

// Adds the flag: a number of GiB, or "auto"; the empty default sets no budget.
void AddActivationMemoryFlag(CommandLine& line, std::string& flag);

// Sets the memory limits of a step in `options`, the same on all ranks. The flag gives the budget
// of activations. "auto" is this rank's share of the memory that its machine and control groups
// have left, less a reserve and the memory of weights, gradients and slots. Collective. Throws
// ConfigError if nothing is left for activations.
void SetMemory(const std::string& flag, const RankContext& context, const Graph& graph,
               train::StepOptions& options);

}  // namespace carole::commands
