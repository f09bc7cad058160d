// Measures how fast devices reduce gradients, which decides how large their buckets should be.
#pragma once

#include <span>

#include "collectives/full_communicator.h"
#include "src/backend/backend.h"

namespace carole::train {

struct ReductionSpeed {
  double latency_us = 0;  // an all-reduce of few bytes
  double us_per_byte = 0;
};

// Measures all-reduces of a small part and of a large part of `gradients` by the device's clock.
// Needs an asynchronous backend, and gradients that the communicator reduces on it; overwrites
// them. Nothing may be in flight. Returns the same on all ranks; rank 0 logs it. Collective.
ReductionSpeed MeasureReductions(const Backend& backend,
                                 collectives::FullCommunicator& communicator,
                                 std::span<float> gradients);

}  // namespace carole::train
