#include "src/train/step/step_options.h"

#include <bit>

#include "src/core/error.h"

namespace carole::train {

size_t StepOptions::num_arenas() const {
  const size_t slots = optim::FindOptimizer(optimizer).plan(optimizer_options).slots.size();
  const int sums = std::bit_width(static_cast<uint64_t>(accumulation_steps - 1));  // PairwiseSum's
  return 2 + slots + (moving_average_decay != 0 ? 1 : 0) + static_cast<size_t>(sums);
}

void StepOptions::Check() const {
  if (reproducible && (sync_batch_norm || is_local())) {
    throw UsageError(
        "[train] --reproducible: got --sync_batch_norm, --reduction or --local_sgd_steps beside "
        "it, want none: each shard is normalized by itself and gradients are summed");
  }
  if (reduction != collectives::Reduction::kSum && local_sgd_steps > 0)
    throw UsageError("[train] --local_sgd_steps: got --reduction beside it, want one of the two");
}

}  // namespace carole::train
