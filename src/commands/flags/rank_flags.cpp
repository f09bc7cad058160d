#include "src/commands/flags/rank_flags.h"

#include <algorithm>

#include "src/core/error.h"
#include "src/core/log.h"
#include "src/core/text/whole_number.h"
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
  line.Group("Training on many ranks");
  line.AddPositive("accumulation_steps", flags.accumulation_steps,
                   "batches of --batch_size for each step; ranks communicate once");
  line.AddBool("sync_batch_norm", flags.sync_batch_norm,
               "batch norm takes its statistics from the samples of all ranks");
  line.AddBool("average_statistics", flags.average_statistics,
               "batch norm's moving statistics are the ranks' mean; else rank 0's are kept, as "
               "TF-Slim keeps those of the first clone");
  line.AddBool(
      "reproducible", flags.reproducible,
      "1, 2, 4, … ranks make the same weights, bit for bit, from one global batch, with equal "
      "--threads on processors of one kind");
  line.AddPositive("reproducible_shards", flags.reproducible_shards,
                   "parts of the global batch that are computed each by itself; a power of two");
  line.Add("reduction", flags.reduction, "how gradients become one: sum or adasum")
      ->check(CLI::IsMember({"sum", "adasum"}));
  line.AddNonNegative(
      "local_sgd_steps", flags.local_sgd_steps,
      "steps that each rank makes by itself before weights are averaged, as they are too where "
      "a run is asked to stop or evaluates; 0: none");
  line.AddNonNegative("audit_every_n_steps", flags.audit_every_n_steps,
                      "steps after which ranks compare their weights and slots; 0: never");
  line.AddBool("cuda_graph", flags.cuda_graph,
               "on GPUs: record a step once, sums over ranks too, and replay it with one call");
  line.Add("bucket_plan", flags.bucket_plan,
           "auto: the first steps find the fastest buckets, unless --bucket_mb or --reproducible "
           "is given; fixed: by size, see --bucket_mb")
      ->check(CLI::IsMember({"auto", "fixed"}));
}

void SetMachineFlags(const RankFlags& flags, MachineFlags& machine) {
  machine.autotune = machine.autotune && !flags.reproducible;
}

void CheckSize(const char* flag, int64_t value) {
  constexpr int64_t kMost = 1 << 24;
  if (value > kMost)
    throw UsageError(fmt::format("[flags] --{}: got {}, want at most {}", flag, value, kMost));
}

StepShape MakeStepShape(const RankFlags& flags, int64_t local_batch, int num_ranks) {
  CheckSize("batch_size", local_batch);
  CheckSize("accumulation_steps", flags.accumulation_steps);
  if (!flags.reproducible)
    return {.graph_batch = local_batch, .micro_batches = flags.accumulation_steps};
  if (flags.accumulation_steps != 1) {
    throw UsageError(
        "[flags] --accumulation_steps: got it beside --reproducible, whose shards are "
        "micro-batches "
        "already; make --reproducible_shards larger");
  }
  const train::Shards shards =
      train::CutIntoShards(local_batch, num_ranks, flags.reproducible_shards);
  return {.graph_batch = shards.rows, .micro_batches = shards.per_rank};
}

void SetStepOptions(const RankFlags& flags, const MachineFlags& machine, const StepShape& shape,
                    train::StepOptions& options) {
  if (flags.reproducible && machine.wire_dtype != "fp32") {
    throw UsageError("[flags] --wire_dtype: got " + machine.wire_dtype +
                     " beside --reproducible, want fp32: rounded sums depend on the ranks");
  }
  if (machine.wire_dtype != "fp32" && (flags.reduction == "adasum" || flags.local_sgd_steps > 0))
    LogInfo("job", "--wire_dtype={}: {} sends fp32 all the same", machine.wire_dtype,
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
