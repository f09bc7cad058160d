// The flags of training steps, which say how ranks train together.
#pragma once

#include <cstdint>
#include <string>

#include "src/commands/flags/flags.h"
#include "src/train/step/step_options.h"

namespace carole::commands {

// The defaults of training, where they differ from those of the library.
inline train::StepOptions DefaultStepOptions() {
  return {.tune_buckets = true, .audit_every_n_steps = 100};
}

// `shards`: the value of --reproducible_shards.
void AddStepFlags(CommandLine& line, train::StepOptions& step, int64_t& shards);

// Completes the options of a step and of the machine, which depend on each other. --reproducible
// turns off what measures speeds, since every rank must use the same plans and buckets. Throws
// UsageError for options that exclude each other.
void ResolveStep(train::StepOptions& step, MachineConfig& machine);

// How a rank splits the batch of one step into micro-batches, each one run of the graph.
struct StepShape {
  int64_t graph_batch = 0;    // samples of a micro-batch
  int64_t micro_batches = 1;  // per step
  int64_t local_batch() const { return graph_batch * micro_batches; }
};

// Checks that a size is small enough for products of sizes not to overflow. The net checks further
// limits. `flag`: the flag's name, for the text. Throws UsageError.
void CheckSize(const char* flag, int64_t value);

// Returns how each of `num_ranks` ranks works through its batch of `local_batch` samples (from the
// flag). Throws UsageError for sizes out of bounds, and if --reproducible cannot divide the global
// batch evenly into `shards`.
StepShape MakeStepShape(const train::StepOptions& step, int64_t shards, int64_t local_batch,
                        int num_ranks);

}  // namespace carole::commands
