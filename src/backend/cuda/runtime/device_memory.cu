#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "src/backend/cuda/runtime/device_memory.h"
#include "src/backend/cuda/runtime/launch.h"
#include "src/core/error.h"

namespace carole::cuda {
namespace {

std::string Megabytes(size_t bytes) { return fmt::format("{} MB", bytes >> 20); }

[[noreturn]] void ThrowOutOfMemory(size_t bytes) {
  cudaGetLastError();  // clears the error, so that the next call does not report it
  size_t free = 0, all = 0;
  cudaMemGetInfo(&free, &all);
  throw DeviceMemoryError(fmt::format(
      "[cuda] GPU memory: not enough: got {} free of {}, want {}; use a smaller {} or {}",
      Megabytes(free), Megabytes(all), Megabytes(bytes), Option("batch_size"),
      Option("activation_memory")));
}

void Free(std::byte* memory) { cudaFree(memory); }

}  // namespace

void Check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  throw DeviceError(fmt::format("[cuda] {}: {} ({})", call, cudaGetErrorString(status),
                                cudaGetErrorName(status)));
}

DeviceMemory AllocateDevice(size_t bytes, CUstream_st* stream) {
  void* memory = nullptr;
  if (bytes == 0) return nullptr;
  const cudaError_t status = cudaMalloc(&memory, bytes);
  if (status == cudaErrorMemoryAllocation) ThrowOutOfMemory(bytes);
  Check(status, "cudaMalloc");
  DeviceMemory owner(static_cast<std::byte*>(memory), Free);
  Check(cudaMemsetAsync(memory, 0, bytes, stream), "cudaMemsetAsync");
  return owner;
}

DeviceMemory AllocateManaged(size_t bytes) {
  void* memory = nullptr;
  if (bytes == 0) return nullptr;
  DeviceMemory owner;
  if (cudaMallocManaged(&memory, bytes) == cudaSuccess) {
    owner = {static_cast<std::byte*>(memory), Free};
  } else {  // some hypervisors and vGPUs lack managed memory; pinned memory works, but slowly
    (void)cudaGetLastError();
    owner = AllocatePinned(bytes);
    memory = owner.get();
  }
  Check(cudaMemset(memory, 0, bytes), "cudaMemset");
  Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  return owner;
}

DeviceMemory AllocatePinned(size_t bytes) {
  void* memory = nullptr;
  if (bytes == 0) return nullptr;
  Check(cudaMallocHost(&memory, bytes), "cudaMallocHost");
  std::fill_n(static_cast<std::byte*>(memory), bytes, std::byte{0});
  return {static_cast<std::byte*>(memory), [](std::byte* p) { cudaFreeHost(p); }};
}

DeviceMemory CopyToDevice(const void* data, size_t bytes, CUstream_st* stream) {
  DeviceMemory copy = AllocateDevice(bytes, stream);
  if (bytes == 0) return copy;
  Check(cudaMemcpyAsync(copy.get(), data, bytes, cudaMemcpyHostToDevice, stream),
        "cudaMemcpyAsync");
  Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  return copy;
}

__global__ void WriteRunContextKernel(DeviceRunContext* to, DeviceRunContext from) { *to = from; }

void WriteRunContext(const Device& device, const DeviceRunContext& run_context) {
  Launch(device.stream, dim3(1), WriteRunContextKernel,
         const_cast<DeviceRunContext*>(device.run_context), run_context);
}

}  // namespace carole::cuda
