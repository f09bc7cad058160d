// --activation_memory: how much memory a step's activations may take.
#pragma once

#include <cstdint>
#include <string>

#include "src/commands/command_line.h"
#include "src/commands/job.h"

namespace carole::commands {

// The flag: a number of GiB, or "auto"; the empty default sets no bound.
void AddActivationMemoryFlag(CommandLine& line, std::string& flag);

// Bytes for the activations of each rank, 0 for no bound. "auto": this rank's share of what its
// machine and control groups have left, less what the weights' `state_bytes` (gradients and slots
// too) will take and a reserve; the same on all ranks. Collective. Throws ConfigError when nothing
// is left.
size_t ActivationBytes(const std::string& flag, const Job& job, int64_t state_bytes);

}  // namespace carole::commands
