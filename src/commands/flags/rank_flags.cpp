#include "src/commands/flags/rank_flags.h"

#include <algorithm>

#include "src/core/error.h"
#include "src/core/log.h"
#include "src/core/text/to_int64.h"
#include "src/train/reduction/reproducible.h"

namespace carole::commands {
namespace {

collectives::BucketOptions MakeBucketOptions(const MachineFlags& flags) {
  collectives::BucketOptions options;
  if (flags.bucket_mb > 0) {
    options.bucket_bytes = static_cast<size_t>(ToInt64(flags.bucket_mb * (1 << 20)));
    options.first_bucket_bytes = std::min(options.first_bucket_bytes, options.bucket_bytes);
  }
  return options;
}

}  // namespace

void AddRankFlags(CommandLine& line, RankFlags& flags) {
  line.Group("Ranks and devices");
  line.AddPositive("accumulation_steps", flags.accumulation_steps,
                   "Batches of --batch_size per step; ranks communicate once per step.");
  line.Add("sync_batch_norm", flags.sync_batch_norm,
           "Compute batch norm statistics over the samples of all ranks.");
  line.Add("average_statistics", flags.average_statistics,
           "Average batch norm's running statistics over ranks; --noaverage_statistics keeps "
           "rank 0's, as TF-Slim keeps the first clone's.");
  line.Add("reproducible", flags.reproducible,
           "Make 1, 2, 4, ... ranks compute bitwise equal weights from one global batch, given "
           "equal --threads and processors of one kind.");
  line.AddPositive("reproducible_shards", flags.reproducible_shards,
                   "Parts of the global batch that --reproducible computes separately; a power of "
                   "two.");
  line.Add("reduction", flags.reduction, "How the gradients of ranks are combined.")
      .OneOf({"sum", "adasum"});
  line.AddNonNegative(
      "local_sgd_steps", flags.local_sgd_steps,
      "Steps that each rank makes alone before weights are averaged (weights are also averaged "
      "before an evaluation or a requested stop); 0: ranks reduce gradients in every step.");
  line.AddNonNegative("audit_every_n_steps", flags.audit_every_n_steps,
                      "Steps between comparisons of weights and slots across ranks; 0: never.");
  line.Add("cuda_graph", flags.cuda_graph,
           "On GPUs, capture a step and its all-reduces as a CUDA graph and replay it.");
  line.Add("bucket_plan", flags.bucket_plan,
           "How gradients are divided into buckets; auto: the first steps search for the fastest "
           "plan, unless --bucket_mb or --reproducible is given; fixed: by --bucket_mb.")
      .OneOf({"auto", "fixed"});
}

void SetMachineFlags(const RankFlags& flags, MachineFlags& machine) {
  machine.autotune = machine.autotune && !flags.reproducible;
}

void CheckSize(const char* flag, int64_t value) {
  constexpr int64_t kMaxValue = 1 << 24;
  if (value > kMaxValue)
    throw UsageError(fmt::format("[flags] --{}: got {}, want at most {}", flag, value, kMaxValue));
}

StepShape MakeStepShape(const RankFlags& flags, int64_t local_batch, int num_ranks) {
  CheckSize("batch_size", local_batch);
  CheckSize("accumulation_steps", flags.accumulation_steps);
  if (!flags.reproducible)
    return {.graph_batch = local_batch, .micro_batches = flags.accumulation_steps};
  if (flags.accumulation_steps != 1) {
    throw UsageError(
        "[flags] --accumulation_steps: cannot be combined with --reproducible, whose shards "
        "already are micro-batches; make --reproducible_shards larger");
  }
  const train::Shards shards =
      train::SplitIntoShards(local_batch, num_ranks, flags.reproducible_shards);
  return {.graph_batch = shards.rows, .micro_batches = shards.per_rank};
}

void SetStepOptions(const RankFlags& flags, const MachineFlags& machine, const StepShape& shape,
                    train::StepOptions& options) {
  if (flags.reproducible && machine.wire_dtype != "fp32") {
    throw UsageError("[flags] --wire_dtype: got " + machine.wire_dtype +
                     ", want fp32 with --reproducible: rounded sums depend on the number of ranks");
  }
  if (machine.wire_dtype != "fp32" && (flags.reduction == "adasum" || flags.local_sgd_steps > 0))
    LogInfo("job", "--wire_dtype={}: has no effect: {} always sends fp32", machine.wire_dtype,
            flags.reduction == "adasum" ? "--reduction=adasum" : "--local_sgd_steps");
  options.buckets = MakeBucketOptions(machine);
  options.tune_buckets =
      flags.bucket_plan == "auto" && machine.bucket_mb == 0 && !flags.reproducible;
  options.replay = flags.cuda_graph;
  options.accumulation_steps = shape.micro_batches;
  options.sync_batch_norm = flags.sync_batch_norm;
  options.average_statistics = flags.average_statistics;
  options.reproducible = flags.reproducible;
  options.reduction =
      flags.reduction == "adasum" ? collectives::Reduction::kAdasum : collectives::Reduction::kSum;
  options.local_sgd_steps = flags.local_sgd_steps;
  options.audit_every_n_steps = flags.audit_every_n_steps;
}

}  // namespace carole::commands
