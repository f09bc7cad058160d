// Device memory that NCCL sums without copies through its own buffers.
//
// NCCL can read and write such memory of another GPU directly, and let NVLink switches add (NVLS).
// Then its kernels take fewer multiprocessors from backward. Both need memory of ncclMemAlloc()
// that is registered with the communicator. All-reduces of a captured step would register it by
// themselves, those of other steps would not.
#pragma once

#include <nccl.h>

#include <cstddef>

#include "collectives/communicator.h"

namespace carole::collectives {

class RegisteredMemory final : public CommArena {
 public:
  // Allocates zeroed memory, and registers it with `comm`. It is plain device memory if the loaded
  // NCCL is older than 2.19, or has no such memory on this GPU. `stream` sets it to zero. The
  // destructor waits for this stream only, so the stream must wait for all other uses before that.
  // Throws DeviceMemoryError if there is too little memory.
  RegisteredMemory(ncclComm_t comm, cudaStream_t stream, size_t bytes);
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;
  // Waits for the stream, calls Deregister(), and frees the memory.
  ~RegisteredMemory() override;

  // Call it before the communicator ends. The memory can still be used. A second call does nothing.
  void Deregister();

  std::byte* data() const override { return static_cast<std::byte*>(memory_); }
  size_t size() const override { return size_; }

 private:
  const ncclComm_t comm_;
  const cudaStream_t stream_;
  const size_t size_;
  void* memory_ = nullptr;
  void* handle_ = nullptr;     // null: not registered
  bool is_from_nccl_ = false;  // else from cudaMalloc()
};

}  // namespace carole::collectives
