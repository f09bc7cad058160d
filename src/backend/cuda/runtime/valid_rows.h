// The rows of a batch that are samples, for kernels. Their number is known only on the device.
// Private to src/backend/cuda.
#pragma once

#include <cuda_runtime.h>

#include "src/backend/cuda/runtime/cuda.h"

namespace carole::cuda {

// Returns how many of the rows are samples (RunContext::valid_rows).
__device__ inline int64_t ValidRows(const DeviceRunContext& context, int64_t rows) {
  if (context.valid_rows == 0) return rows;
  return context.valid_rows == RunContext::kNoRows ? 0 : context.valid_rows;
}

}  // namespace carole::cuda
