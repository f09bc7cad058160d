#include "collectives/nccl/registered_memory.h"

#include "collectives/nccl/status.h"

// A library that is older than kMinVersion lacks these functions. It can be loaded all the same.
#pragma weak ncclMemAlloc
#pragma weak ncclMemFree
#pragma weak ncclCommRegister
#pragma weak ncclCommDeregister

namespace carole::collectives {
namespace {

constexpr int kMinVersion = 21900;  // 2.19.0

bool CanRegister() {
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess && version >= kMinVersion;
}

}  // namespace

RegisteredMemory::RegisteredMemory(ncclComm_t comm, cudaStream_t stream, size_t bytes)
    : comm_(comm), stream_(stream), size_(bytes) {
  is_from_nccl_ = CanRegister() && ncclMemAlloc(&memory_, bytes) == ncclSuccess;
  if (!is_from_nccl_) {
    (void)cudaGetLastError();  // clears the error of ncclMemAlloc()
    CAROLE_CUDA(cudaMalloc(&memory_, bytes));
  } else if (!IsFine(ncclCommRegister(comm_, memory_, bytes, &handle_))) {
    handle_ = nullptr;
  }
  CAROLE_CUDA(cudaMemsetAsync(memory_, 0, bytes, stream_));
}

RegisteredMemory::~RegisteredMemory() {
  cudaStreamSynchronize(stream_);
  Deregister();
  is_from_nccl_ ? static_cast<void>(ncclMemFree(memory_)) : static_cast<void>(cudaFree(memory_));
}

void RegisteredMemory::Deregister() {
  if (handle_ != nullptr) ncclCommDeregister(comm_, handle_);
  handle_ = nullptr;
}

}  // namespace carole::collectives
