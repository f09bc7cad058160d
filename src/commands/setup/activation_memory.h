// --activation_memory: how much memory a step's activations may take.
#pragma once

#include <string>

#include "src/commands/cli/command_line.h"
#include "src/commands/setup/rank_context.h"
#include "src/graph/graph.h"
#include "src/train/step/step_options.h"

namespace carole::commands {

// The flag: a number of GiB, or "auto"; the empty default sets no bound.
void AddActivationMemoryFlag(CommandLine& line, std::string& flag);

// Sets what memory a step may take: its activations by the flag, "auto" being this rank's share of
// what its machine and control groups have left, less a reserve and what weights and all that
// belongs to them will take in a step of these options; the same on all ranks. Collective. Throws
// ConfigError when nothing is left.
void SetMemory(const std::string& flag, const Job& job, const Graph& graph,
               train::StepOptions& options);

}  // namespace carole::commands
