// Turns statuses of CUDA and NCCL into errors. Private to collectives/nccl.
#pragma once

#include <cuda_runtime.h>
#include <fmt/format.h>
#include <nccl.h>

#include <string>

#include "src/core/error.h"

namespace carole::collectives {

inline void CheckCuda(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // clears the error, so that the next call does not report it
    size_t free = 0, all = 0;
    (void)cudaMemGetInfo(&free, &all);
    throw DeviceMemoryError(
        fmt::format("[nccl] GPU memory: not enough: got {} MB free of {} MB; use a smaller {} "
                    "(carole bench allreduce: {})",
                    free >> 20, all >> 20, Option("batch_size"), Option("sizes")));
  }
  throw DeviceError(
      fmt::format("[nccl] {}: {}; run `carole doctor`", call, cudaGetErrorString(status)));
}
#define CAROLE_CUDA(call) CheckCuda((call), #call)

inline bool IsFine(ncclResult_t status) {
  return status == ncclSuccess || status == ncclInProgress;
}

// Returns the kind of error, and the library's last error text.
inline std::string Explain(ncclResult_t status) {
  const char* last = ncclGetLastError(nullptr);
  return fmt::format("{}{}{}; NCCL_DEBUG=WARN says more", ncclGetErrorString(status),
                     last == nullptr || *last == '\0' ? "" : ": ", last == nullptr ? "" : last);
}

inline void CheckNccl(ncclResult_t status, const char* call) {
  if (IsFine(status)) return;
  const std::string text = fmt::format("[nccl] {}: {}", call, Explain(status));
  // A batch script would restart the job after a CommError, and this would fail in the same way.
  if (status == ncclInvalidUsage || status == ncclInvalidArgument) throw ConfigError(text);
  throw CommError(text);
}
#define CAROLE_NCCL(call) CheckNccl((call), #call)

}  // namespace carole::collectives
