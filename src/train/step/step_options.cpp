#include "src/train/step/step_options.h"

#include <bit>

#include "src/core/error.h"

namespace carole::train {

size_t StepOptions::CountParameterArenas() const {
  const size_t slots = optim::FindOptimizer(optimizer).plan(optimizer_options).slots.size();
  // PairwiseSum keeps one partial sum per level of its tree.
  const int sums = std::bit_width(static_cast<uint64_t>(accumulation_steps - 1));
  const size_t saved = cross_check_every > 0 ? 1 : 0;  // gradients, while others are computed
  return 2 + slots + (moving_average_decay != 0 ? 1 : 0) + static_cast<size_t>(sums) + saved;
}

void StepOptions::Check() const {
  if (reproducible && (sync_batch_norm || MinimizesLocalLoss())) {
    throw UsageError(
        {.tag = "train",
         .option = "reproducible",
         .got = Option("sync_batch_norm") + ", " + Option("reduction") + " or " +
                Option("local_sgd_steps") + " as well",
         .want = "none of these: each shard is normalized separately and gradients are summed"});
  }
  if (reduction != collectives::Reduction::kSum && local_sgd_steps > 0) {
    throw UsageError({.tag = "train",
                      .option = "local_sgd_steps",
                      .got = Option("reduction") + " as well",
                      .want = "only one of them"});
  }
  if (cross_check_every > 0 && (sync_batch_norm || local_sgd_steps > 0)) {
    throw UsageError(
        {.tag = "train",
         .option = "cross_check_every",
         .got = Option("sync_batch_norm") + " or " + Option("local_sgd_steps") + " as well",
         .want = "neither: a rank can compute the gradients of another one only from "
                 "the same weights, and without the rows of other ranks"});
  }
}

}  // namespace carole::train
