#include "src/commands/flags/step_flags.h"

#include <algorithm>
#include <optional>

#include "src/core/error.h"
#include "src/core/log.h"
#include "src/core/text/to_int64.h"
#include "src/train/reduction/reproducible.h"

namespace carole::commands {
namespace {

collectives::BucketOptions MakeBucketOptions(double bucket_mb) {
  collectives::BucketOptions options;
  if (bucket_mb > 0) {
    options.bucket_bytes = static_cast<size_t>(ToInt64(bucket_mb * (1 << 20)));
    options.first_bucket_bytes = std::min(options.first_bucket_bytes, options.bucket_bytes);
    options.last_bucket_bytes = std::min(options.last_bucket_bytes, options.bucket_bytes);
  }
  return options;
}

}  // namespace

void AddStepFlags(CommandLine& line, train::StepOptions& step, int64_t& shards) {
  line.Group("Ranks and devices");
  line.AddPositive("accumulation_steps", step.accumulation_steps,
                   "Batches of --batch_size per step; ranks communicate once per step.");
  line.Add("sync_batch_norm", step.sync_batch_norm,
           "Compute batch norm statistics over the samples of all ranks.");
  line.Add("average_statistics", step.average_statistics,
           "Average batch norm's running statistics over ranks; --noaverage_statistics keeps "
           "rank 0's, as TF-Slim keeps the first clone's.");
  line.Add("reproducible", step.reproducible,
           "Make 1, 2, 4, ... ranks compute bitwise equal weights from one global batch, given "
           "equal --threads and processors of one kind.");
  line.AddPositive("reproducible_shards", shards,
                   "Parts of the global batch that --reproducible computes separately; a power of "
                   "two.");
  line.AddChoice<collectives::Reduction>(
      "reduction", step.reduction,
      {{"sum", collectives::Reduction::kSum}, {"adasum", collectives::Reduction::kAdasum}},
      "How the gradients of ranks are combined.");
  line.AddNonNegative(
      "local_sgd_steps", step.local_sgd_steps,
      "Steps that each rank makes alone before weights are averaged (weights are also averaged "
      "before an evaluation or a requested stop); 0: ranks reduce gradients in every step.");
  line.AddNonNegative(
      "audit_every_n_steps", step.audit_every_n_steps,
      "Steps between comparisons of weights and slots across ranks; a minority gets "
      "the values of the majority; 0: never.");
  line.AddNonNegative("cross_check_every", step.cross_check_every,
                      "Steps between checks of gradients: the next rank computes those of this "
                      "rank again, and a third one decides if they differ; 0: never.");
  line.Add("cuda_graph", step.replay,
           "On GPUs, capture a step and its all-reduces as a CUDA graph and replay it.");
  line.AddChoice<bool>(
      "bucket_plan", step.tune_buckets, {{"auto", true}, {"fixed", false}},
      "How gradients are divided into buckets; auto: the first steps search for the fastest "
      "plan (on GPUs, the network is measured), unless --bucket_mb or --reproducible is given; "
      "fixed: by --bucket_mb.");
}

void ResolveStep(train::StepOptions& step, MachineConfig& machine) {
  std::optional<DType>& wire_dtype = machine.communicator.wire_dtype;
  const bool is_adasum = step.reduction == collectives::Reduction::kAdasum;
  const bool sends_fp32 = is_adasum || step.local_sgd_steps > 0;
  step.Check();
  if (step.reproducible && step.accumulation_steps != 1) {
    throw UsageError(
        "[flags] --accumulation_steps: cannot be combined with --reproducible, whose shards "
        "already are micro-batches; make --reproducible_shards larger");
  }
  if (step.reproducible && wire_dtype == DType::kBF16) {
    throw UsageError(
        "[flags] --wire_dtype: got bf16, want fp32 with --reproducible: rounded sums depend on the "
        "number of ranks");
  }
  if (sends_fp32 && wire_dtype == DType::kBF16)
    LogInfo("job", "--wire_dtype=bf16: has no effect: {} always sends fp32",
            is_adasum ? "--reduction=adasum" : "--local_sgd_steps");
  if (!wire_dtype && (step.reproducible || sends_fp32)) wire_dtype = DType::kF32;
  machine.autotune = machine.autotune && !step.reproducible;
  step.buckets = MakeBucketOptions(machine.bucket_mb);
  step.tune_buckets = step.tune_buckets && machine.bucket_mb == 0 && !step.reproducible;
}

void CheckSize(const char* flag, int64_t value) {
  constexpr int64_t kMaxValue = 1 << 24;
  if (value > kMaxValue)
    throw UsageError(fmt::format("[flags] --{}: got {}, want at most {}", flag, value, kMaxValue));
}

StepShape MakeStepShape(const train::StepOptions& step, int64_t shards, int64_t local_batch,
                        int num_ranks) {
  CheckSize("batch_size", local_batch);
  CheckSize("accumulation_steps", step.accumulation_steps);
  if (!step.reproducible)
    return {.graph_batch = local_batch, .micro_batches = step.accumulation_steps};
  const train::Shards split = train::SplitIntoShards(local_batch, num_ranks, shards);
  return {.graph_batch = split.rows, .micro_batches = split.per_rank};
}

}  // namespace carole::commands
