// Converts values between fp32 and bf16 on a GPU, for sums that travel as bf16.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "src/core/float16.h"

namespace carole::collectives {

// Both enqueue a kernel in `stream` that converts `count` values in device memory, and return the
// status of the launch. RoundToWire() rounds to nearest, ties to even. Infinities and NaN stay what
// they are, in both directions.
cudaError_t RoundToWire(const float* from, Bf16* to, size_t count, cudaStream_t stream);
cudaError_t WidenFromWire(const Bf16* from, float* to, size_t count, cudaStream_t stream);

}  // namespace carole::collectives
