#include "src/train/step_options.h"

#include "src/core/error.h"

namespace carole::train {

void StepOptions::Check() const {
  const bool is_plain = reduction == collectives::Reduction::kSum && local_sgd_steps == 0;
  if (reproducible && (sync_batch_norm || !is_plain)) {
    throw UsageError(
        "[train] --reproducible: got --sync_batch_norm, --reduction or --local_sgd_steps beside "
        "it, want none: each shard is normalised by itself and gradients are summed");
  }
  if (reduction != collectives::Reduction::kSum && local_sgd_steps > 0)
    throw UsageError("[train] --local_sgd_steps: got --reduction beside it, want one of the two");
}

}  // namespace carole::train
