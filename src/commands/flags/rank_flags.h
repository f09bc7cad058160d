// Flags that say how ranks train together, and the step options that follow from them.
#pragma once

#include <cstdint>
#include <string>

#include "src/commands/flags/flags.h"
#include "src/train/step/step_options.h"

namespace carole::commands {

struct RankFlags {
  int64_t accumulation_steps = 1;
  bool sync_batch_norm = false;
  bool average_statistics = true;
  bool reproducible = false;
  int64_t reproducible_shards = 8;
  std::string reduction = "sum";
  int64_t local_sgd_steps = 0;
  int64_t audit_every_n_steps = 100;
  std::string bucket_plan = "auto";
  bool cuda_graph = true;
};
void AddRankFlags(CommandLine& line, RankFlags& flags);

// Adjusts `machine` to these flags: --reproducible turns autotuning off, since every GPU must use
// the same plans, and plans that were chosen by timing can differ.
void SetMachineFlags(const RankFlags& flags, MachineFlags& machine);

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
// batch evenly.
StepShape MakeStepShape(const RankFlags& flags, int64_t local_batch, int num_ranks);

// Fills the step options that follow from both kinds of flags. Throws UsageError for flags that
// exclude each other.
void SetStepOptions(const RankFlags& flags, const MachineFlags& machine, const StepShape& shape,
                    train::StepOptions& options);

}  // namespace carole::commands
