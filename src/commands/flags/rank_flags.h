// The flags that say how ranks train together.
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

// What these ask of the machine: reproducible training takes the same plans on every GPU, and so
// none that was timed.
void SetMachineFlags(const RankFlags& flags, MachineFlags& machine);

// How a rank works through a step: micro-batches, each one run of the graph.
struct StepShape {
  int64_t graph_batch = 0;
  int64_t micro_batches = 1;
  int64_t local_batch() const { return graph_batch * micro_batches; }
};

// Throws UsageError for a value of which products could overflow; the net says more of what it can
// do.
void CheckSize(const char* flag, int64_t value);

// local_batch is that of the flag, of each of `num_ranks` ranks. Throws UsageError for sizes out of
// bounds, and when reproducible training cannot cut the global batch evenly.
StepShape MakeStepShape(const RankFlags& flags, int64_t local_batch, int num_ranks);

// Fills what the two kinds of flags decide. Throws UsageError for flags that exclude each other.
void SetStepOptions(const RankFlags& flags, const MachineFlags& machine, const StepShape& shape,
                    train::StepOptions& options);

}  // namespace carole::commands
